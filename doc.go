// Package lastword holds the words of lastword: leases whose fence reaches the
// write.
//
// An authority grants a lease (one tenure) together with a number, the fencing
// token, in one atomic step. The holder carries a signed grant. The resource
// checks the grant in the same transaction as the business write and keeps the
// highest fence it ever accepted. This package has no behaviour beyond its
// words: identifiers and their parsers, requests and answers, verdicts, codes
// and errors. Every other package speaks them, and it imports only the standard
// library.
//
// # Guarantees
//
// A resource, token or digest that a parser of this package returned is valid and
// canonical: it is byte for byte what was parsed. A duration that does not fit is
// refused, never wrapped. Codes and verdicts are closed sets. "The other side said
// so" and "we did not hear" are never the same error: only [ErrUnknownOutcome]
// says that an outcome is open.
//
// # Not guaranteed
//
// Words promise nothing. A [Token] says nothing about who holds what; only a
// verified grant does (package grant). A lease that ended does not stop an older
// write at that instant: it is stopped once the resource has durably accepted a
// newer fence.
package lastword
