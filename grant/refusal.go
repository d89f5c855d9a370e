package grant

import (
	"errors"
	"strings"

	"github.com/lastword/lastword"
)

// Reason says why a grant or a status proof was not believed. The set is closed. Programs act on
// reasons, never on messages.
type Reason string

// The reasons, in the order in which R12 looks for them.
const (
	// ReasonTooLarge: more than [MaxBytes] bytes. Nothing was decoded.
	ReasonTooLarge Reason = "TOO_LARGE"
	// ReasonSegments: not exactly three segments divided by dots.
	ReasonSegments Reason = "SEGMENTS"
	// ReasonEncoding: a segment is not base64url without padding, or has bits
	// left over that are not zero.
	ReasonEncoding Reason = "ENCODING"
	// ReasonMalformed: header or claims are no JSON object.
	ReasonMalformed Reason = "MALFORMED"
	// ReasonTooDeep: a member holds an object or an array.
	ReasonTooDeep Reason = "TOO_DEEP"
	// ReasonUnknownMember: a member that the format does not have, or the name
	// of one that it has in other letters.
	ReasonUnknownMember Reason = "UNKNOWN_MEMBER"
	// ReasonDuplicateMember: a member occurs twice.
	ReasonDuplicateMember Reason = "DUPLICATE_MEMBER"
	// ReasonMissingMember: a member of the format is not there.
	ReasonMissingMember Reason = "MISSING_MEMBER"
	// ReasonNumber: a number that is not spelled as plain decimal digits, is
	// above 2^53 − 1, or is no number.
	ReasonNumber Reason = "NUMBER"
	// ReasonFenceRange: the fence is 0 or above 2^53 − 1.
	ReasonFenceRange Reason = "FENCE_RANGE"
	// ReasonValue: a member's value is not one that the authority can have
	// written, such as a resource id that is not canonical.
	ReasonValue Reason = "VALUE"
	// ReasonNotCanonical: the same meaning in other bytes than the signer writes.
	ReasonNotCanonical Reason = "NOT_CANONICAL"
	// ReasonType: typ is not the wanted one, [Type] or [StatusType]: a signed value of
	// another kind (T9).
	ReasonType Reason = "TYPE"
	// ReasonVersion: the claims have another version.
	ReasonVersion Reason = "VERSION"

	// ReasonBundleUnavailable: the trust bundle could not be had. It says
	// nothing about the grant.
	ReasonBundleUnavailable Reason = "BUNDLE_UNAVAILABLE"
	// ReasonBundleInvalid: the source gave no bundle, or one of another domain.
	ReasonBundleInvalid Reason = "BUNDLE_INVALID"
	// ReasonBundleRollback: the source gave a bundle older than one seen before,
	// or another one under the same sequence (R13, T27).
	ReasonBundleRollback Reason = "BUNDLE_ROLLBACK"
	// ReasonBundleLeap: the bundle's sequence is thousands ahead of the newest one seen
	// before, and of its own epoch: believed, it would keep the authority's own out.
	ReasonBundleLeap Reason = "BUNDLE_LEAP"

	// ReasonUnknownKey: the trust bundle does not have the key.
	ReasonUnknownKey Reason = "UNKNOWN_KEY"
	// ReasonAlgorithm: the header names another algorithm than the key's own.
	ReasonAlgorithm Reason = "ALGORITHM"
	// ReasonSignature: the key did not sign these bytes.
	ReasonSignature Reason = "SIGNATURE"
	// ReasonDomain: signed for another domain.
	ReasonDomain Reason = "DOMAIN_MISMATCH"
	// ReasonEpoch: the issuer epoch is not the one in the fence.
	ReasonEpoch Reason = "EPOCH_MISMATCH"
	// ReasonEpochOfKey: the key may not sign for this issuer epoch.
	ReasonEpochOfKey Reason = "EPOCH_OUTSIDE_KEY"
	// ReasonEpochRevoked: the issuer epoch is below the bundle's minimum (T27).
	ReasonEpochRevoked Reason = "EPOCH_BELOW_MINIMUM"
	// ReasonEpochAhead: the issuer epoch is above the bundle's current one, also
	// after the source was asked again.
	ReasonEpochAhead Reason = "EPOCH_ABOVE_CURRENT"

	// ReasonResource: the grant is for another resource (T10).
	ReasonResource Reason = "RESOURCE_MISMATCH"
	// ReasonOwner: the grant is another owner's (T1).
	ReasonOwner Reason = "OWNER_MISMATCH"
	// ReasonRoot: the grant names another operation root.
	ReasonRoot Reason = "ROOT_MISMATCH"
	// ReasonClass: the grant's operation class does not admit the mutation (T25).
	ReasonClass Reason = "CLASS_MISMATCH"
	// ReasonPolicy: the grant has another policy generation than the mutation.
	ReasonPolicy Reason = "POLICY_MISMATCH"
	// ReasonPolicyRevoked: the grant's policy generation is below the resource's
	// minimum (T26).
	ReasonPolicyRevoked Reason = "POLICY_BELOW_MINIMUM"

	// ReasonProofGrant: the status proof speaks of another grant.
	ReasonProofGrant Reason = "PROOF_OF_ANOTHER_GRANT"
	// ReasonProofPending: the status proof says PENDING, and HELD is wanted.
	ReasonProofPending Reason = "PROOF_PENDING"
	// ReasonProofAhead: the status proof was issued later than the resource's clock
	// can say, so the stated bound of the clock skew does not hold.
	ReasonProofAhead Reason = "PROOF_AHEAD"
	// ReasonProofExpired: the status proof has expired, or may have, within the
	// stated bound of the clock skew.
	ReasonProofExpired Reason = "PROOF_EXPIRED"
	// ReasonProofOld: the resource has seen a later answer than the status proof is
	// (T14).
	ReasonProofOld Reason = "PROOF_SUPERSEDED"
)

// Refusal is why a grant or a status proof was not believed. It stands in the Err
// field of the [lastword.Error] of code UNVERIFIED that [Verifier.Open],
// [Verifier.OpenStatus], [Inspect] and [InspectStatus] return, so errors.As finds it. It never holds a
// part of what was refused.
type Refusal struct {
	Reason Reason
	Err    error // what the bundle's source said, where it failed
}

// Error is the reason, and behind it what the bundle's source said.
func (r *Refusal) Error() string {
	if r.Err != nil {
		return string(r.Reason) + ": " + r.Err.Error()
	}
	return string(r.Reason)
}

// Unwrap is what the bundle's source said.
func (r *Refusal) Unwrap() error { return r.Err }

// ReasonOf is the reason inside err, or "" if err is no refusal of a grant.
func ReasonOf(err error) Reason {
	var r *Refusal
	if errors.As(err, &r) {
		return r.Reason
	}
	return ""
}

// explanation is what people read beside a reason: what was wrong, and the way
// out where there is one.
type explanation struct{ message, hint string }

var explanations = map[Reason]explanation{
	ReasonTooLarge:          {"the grant has more than 4096 bytes", ""},
	ReasonSegments:          {"the grant does not have exactly three segments", "pass the grant as the authority returned it, without line breaks"},
	ReasonEncoding:          {"a segment of the grant is not strict base64url", "pass the grant as the authority returned it, without line breaks"},
	ReasonMalformed:         {"header or claims of the grant are no JSON object", ""},
	ReasonTooDeep:           {"a member of the grant holds an object or an array", ""},
	ReasonUnknownMember:     {"the grant has a member that its format does not have", ""},
	ReasonDuplicateMember:   {"the grant has a member twice", ""},
	ReasonMissingMember:     {"the grant lacks a member of its format", ""},
	ReasonNumber:            {"the grant has a number that is not plain decimal digits up to 2^53-1", ""},
	ReasonFenceRange:        {"the fence of the grant is not from 1 to 2^53-1", ""},
	ReasonValue:             {"the grant has a value that no authority writes", ""},
	ReasonNotCanonical:      {"the grant is not spelled as its signer spells it", ""},
	ReasonType:              {"this is not a lock grant", "pass the grant, not a status proof or another token"},
	ReasonVersion:           {"the grant has an unknown version", "update this verifier"},
	ReasonBundleUnavailable: {"the trust bundle could not be had, so nothing is known about the grant", "try again when the bundle's source answers"},
	ReasonBundleInvalid:     {"the trust bundle is not one of this domain", "give the bundle of the domain's authority"},
	ReasonBundleLeap:        {"the trust bundle's sequence is far ahead of the newest one seen before", "find out who made it; export a new one at the authority"},
	ReasonBundleRollback:    {"the trust bundle is older than one seen before, or changed without a new sequence", "find out who serves an old bundle"},
	ReasonUnknownKey:        {"the trust bundle does not have the key of the grant", ""},
	ReasonAlgorithm:         {"the grant names another algorithm than its key has", ""},
	ReasonSignature:         {"the key of the grant did not sign it", ""},
	ReasonDomain:            {"the grant is of another domain", ""},
	ReasonEpoch:             {"the issuer epoch of the grant is not the one in its fence", ""},
	ReasonEpochOfKey:        {"the key of the grant may not sign for its issuer epoch", "acquire again"},
	ReasonEpochRevoked:      {"the issuer epoch of the grant was revoked", "acquire again"},
	ReasonEpochAhead:        {"the issuer epoch of the grant is ahead of the trust bundle", "bring the trust bundle up to date"},
	ReasonResource:          {"the grant is for another resource", ""},
	ReasonOwner:             {"the grant belongs to another owner than the caller", ""},
	ReasonRoot:              {"the grant names another operation root", ""},
	ReasonClass:             {"the operation class of the grant does not admit this", ""},
	ReasonPolicy:            {"the grant has another policy generation than the mutation", "acquire again"},
	ReasonPolicyRevoked:     {"the policy generation of the grant is below the resource's minimum", "acquire again"},
	ReasonProofGrant:        {"the proof speaks of another grant", "ask the authority for a proof of this tenure"},
	ReasonProofPending:      {"the proof says that the tenure is pending, and it has to be held", ""},
	ReasonProofAhead:        {"the proof was issued after the present time of this clock", "the clocks are further apart than the stated bound"},
	ReasonProofExpired:      {"the proof has expired, or may have within the bound of the clock skew", "ask the authority for a new one"},
	ReasonProofOld:          {"a later answer about this resource has been seen", "ask the authority for a new proof"},
}

// refused is the error of a reason. The values of the grant stay out of it: they
// are the other side's words until they are verified.
func refused(op string, resource lastword.Resource, why *Refusal) error {
	e := explanations[why.Reason]
	if op == opStatus || op == opInspectStatus {
		if why.Reason == ReasonType {
			e = explanation{"this is not a status proof", "pass the proof, not a grant or another token"}
		}
		e.message = strings.ReplaceAll(e.message, "the grant", "the proof")
	}
	return &lastword.Error{
		Code: lastword.CodeUnverified, Op: op, Resource: resource,
		Message: e.message, Hint: e.hint, Err: why,
	}
}
