// Package identity says who is calling, and what a caller may do.
//
// Who: a SPIFFE id in the certificate that the other side proved over TLS 1.3. A
// [Source] has the own certificate and the certificate authorities of each trust
// domain, from files that it reads again when they change, and makes the
// configurations of both sides of it. A [Peer] is whom a connection belongs to. For
// development there are [Tokens], on loopback, and certificates of one's own
// ([InitCA], [Issue]).
//
// What: a [Policy], parsed from YAML; [PolicyFile] follows the file and never goes
// back.
//
// # Guarantees
//
// A connection is accepted in both directions only with a certificate that is an
// X509-SVID: in time, for this use, with exactly one URI name, which is a well-formed
// SPIFFE id of a pinned trust domain, and issued by an authority of that very domain.
// Each kind of bad certificate has its own [Reason] (T2). A client accepts the one id
// that it was told to expect (T4). A peer is looked at again when its certificate has
// run out or the authorities have changed, also on a connection that is open.
//
// A file that cannot be used changes nothing: what was read before stays in force, and
// [Source.Reload] and [PolicyFile.Reload] say why. Nothing that a policy file does not
// name is allowed. What a policy allows depends on the caller and the question alone,
// never on what there is, so that an answer tells nothing about it (T18).
//
// Private keys and tokens are never in an error or a log.
//
// # Not guaranteed
//
// Without a policy, whoever has an identity may do everything in its own name.
// Certificates are not checked against revocation lists: take a short life, or take
// the issuer out of the bundle. Two processes with one identity are one owner. The
// development CA has no protection but the modes of its files.
package identity
