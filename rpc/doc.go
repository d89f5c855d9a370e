// Package rpc is the wire of lastword: the gRPC service
// lastword.v1.AuthorityService with its server and its client.
//
// Calls of a [Client] travel through one session: one stream, in which the calls of
// many goroutines share a message and the answers do, too. A call of a session goes
// through the same code as the unary call and means the same. While no session can
// be opened, at an authority that has none or beyond its bound, the client calls one
// by one.
//
// [NewServer] serves anything that has the methods of [Authority], with the
// standard health service and server reflection beside it. [Dial] gives a
// [Client] that has the same methods, so a caller need not know whether the
// authority is in its own process. The schema is lastword/v1/authority.proto.
//
// # Refusals
//
// What the authority says travels as a gRPC status with one Refusal message in
// its details, and the client makes the same [lastword.Error] of it. The gRPC
// code beside it is for generic tools; programs act on the reason:
//
//	INVALID                                      INVALID_ARGUMENT
//	HELD, REQUEST_CONFLICT, CONFLICT             ALREADY_EXISTS
//	QUOTA                                        RESOURCE_EXHAUSTED
//	EXHAUSTED                                    OUT_OF_RANGE
//	UNVERIFIED                                   PERMISSION_DENIED
//	UNAVAILABLE, STATUS_UNAVAILABLE              UNAVAILABLE
//	UNKNOWN, MUTATION_UNKNOWN                    UNKNOWN
//	INTERNAL                                     INTERNAL
//	every other reason                           FAILED_PRECONDITION
//
// HELD is not ABORTED, because generic clients retry that by themselves, and a
// loop of acquires is no queue: ask with a wait instead. CANCELED is not
// CANCELLED, which gRPC itself answers when a caller goes away.
//
// # Guarantees
//
// "The other side said so" and "we did not hear" are never the same error. An
// error that carries a Refusal is what the authority said. Every other failure
// of a call that changes something is [lastword.ErrUnknownOutcome], with one
// exception: when no frame of the call was handed to any connection, nobody can
// have acted on it, and it is [lastword.CodeUnavailable]. That is so when the
// context was over before the call, while the address cannot be reached, or
// while the call waited for a free stream. The client sees it in gRPC's own
// account of the call (the event that its headers left), not in a status code,
// which a proxy can make up. In a session a call has left once its message is handed
// to the stream; none is before the authority has opened the session. When a session
// breaks, calls that had left are unknown. When the authority ends it, after a
// shutdown or a long silence, it says which calls it has read and answers those; the
// client makes the others, of which nothing was done, once more.
//
// The client sends a call once. gRPC's configured retries, service configs and
// waiting for a connection are off. Its transparent retry remains: it repeats
// only a stream of which HTTP/2 says that the server has not seen it. A call of
// which an earlier try had left is unknown even then: when in doubt, unknown.
// The same request id makes a repetition safe (R2).
//
// Every id, fence, digest and duration is checked before the authority sees it,
// by the parsers of package lastword, and refused, never repaired or shortened.
// Requests, and the messages of a session, are at most [MaxRequestBytes]. A caller that goes away ends its wait;
// its deadline is the deadline of the context that the authority sees. A panic
// of the authority ends no process and shows no stack trace to the caller, who
// is told INTERNAL, or UNKNOWN if the call could have changed something: INTERNAL
// says "not done", and nobody knows that of a call that was interrupted.
//
// One client cannot take the authority for itself by a session (T22, T23). The
// calls of a session without an answer are at most its window. The authority is at
// work on 128 of them at a time, waiting acquires not counted, so that another
// session's call finds at most so many of each session before it; what holders say
// goes first. Of what is not begun, and of answers that are not taken, at most
// 256 KiB and a message are kept; then the session is read no further, and it ends
// when answers are left untaken for [ServerConfig.StallTimeout]. A waiting acquire
// never keeps a renewal from being sent: an eighth of the window is left for those
// that do not wait.
//
// A watch is one stream that ends with an error; whoever watches again is shown
// everything anew. A reader that does not read holds up its own stream, and a
// shutdown for as long as that waits, and nothing else.
//
// # Not guaranteed
//
// Without [ServerConfig.Identify] an owner is what the caller says; such a server
// listens on loopback only. The number of connections is not bounded; that of sessions
// is, and a session's waits, about 20 KB each, are bounded by its window and by the
// authority's bounds for owners and resources. Calls of one session are not served in
// the order of their ids. What HTTP/2 holds of a session that ended because nobody
// read it, about 128 KiB, stays until its connection ends. An answer
// that arrives says what was true when it was sent.
package rpc
