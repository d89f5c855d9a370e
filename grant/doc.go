// Package grant is the seal of lastword: the signed value that carries a fence
// from the authority to the resource (protocol §3, lockGrant.v1).
//
// A [Signer] turns [Claims] into a grant, a JWS that any stock JOSE library can
// check, and [StatusClaims] into a status proof. A [Bundle] tells whom to believe; a
// [BundleSource] keeps it young. A [Verifier] opens a grant: it checks seal, trust
// and binding in the fixed order of R12 and returns a [Verified], which is the only
// thing a fence accepts (R14). [Inspect] reads a grant without believing it. A [Ring]
// holds the keys of an authority, and rotates and revokes them. The formats are
// written down in spec/GRANT.md.
//
// # Guarantees
//
// [Verifier.Open] admits only bytes that a key of the trust bundle signed, for
// exactly the resource, owner, operation root, class and policy generation that
// were asked for (P3, R12). There is one spelling of every grant: other bytes with
// the same meaning are refused (T6, T7). The algorithm is fixed by the key, never
// by the message (T8), and the type is inside the signed bytes (T9). The size is
// checked before anything is decoded (T22). A [Verified] that Open did not fill is
// not valid. A trust bundle never goes back while a Verifier lives, and one that was
// fetched is not used past its limit (R13). Equal
// claims under one key give byte-identical grants (R2). Keys do not show in any
// printed, logged or marshalled form (T17).
//
// # Not guaranteed
//
// A grant that verifies was issued; it does not say that the lease is still held.
// That is the resource's status question, and in the end the fence in its record.
// A grant is not a secret that proves who sent it: compare the owner with an
// authenticated caller ([Want.Owner]). A status proof compares two wall clocks, so it
// is as good as the stated bound of their skew. A [StaticBundle] does not age. A new
// process starts from [VerifierConfig.Floor] or [Want.Bundle], not from what the one
// before has seen.
package grant
