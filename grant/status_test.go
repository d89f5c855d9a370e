package grant_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
)

// noon is when the proofs of these tests are issued.
var noon = time.Date(2026, 7, 19, 12, 0, 0, 0, time.UTC)

// statusOf is a good proof of the good grant: the authority has begun epoch 5 since.
func statusOf(t testing.TB, w *world) grant.StatusClaims {
	t.Helper()
	d, err := w.signer.Digest("", claims(t))
	must(t, err)
	return grant.StatusClaims{
		Domain: domain, Resource: resource, LeaseID: "lease-7f3a", Fence: fence(t, 4, 41), GrantDigest: d,
		State: lastword.StateHeld, Epoch: 5, Revision: 1300, IssuedAt: noon, Expires: noon.Add(10 * time.Second),
	}
}

func (w *world) proof(t testing.TB, c grant.StatusClaims) string {
	t.Helper()
	p, err := w.signer.SignStatus(c)
	must(t, err)
	return p
}

// opened is the good grant as a verifier gives it.
func (w *world) opened(t testing.TB) grant.Verified {
	t.Helper()
	g, err := w.verifier(t, grant.VerifierConfig{}).Open(t.Context(), w.sign(t, claims(t)), want(t))
	must(t, err)
	return g
}

// statusWant asks at one second past, with clocks that are at most two seconds apart.
func statusWant(t testing.TB, w *world) grant.StatusWant {
	return grant.StatusWant{
		Grant: w.opened(t), Now: noon.Add(time.Second), Skew: 2 * time.Second,
		Seen: grant.StatusMark{Epoch: 5, Revision: 1300},
	}
}

// timeOf is the instant of a vector file.
func timeOf(milliseconds int64) time.Time { return time.UnixMilli(milliseconds) }

// proofForgery is one way not to be a good status proof.
type proofForgery struct {
	name   string
	rule   string
	proof  string
	want   grant.StatusWant
	reason grant.Reason // "" is good
}

func proofForgeries(t testing.TB, w *world) []proofForgery {
	return append(proofSealForgeries(t, w), proofBindingForgeries(t, w)...)
}

// proofSealForgeries are signed by the right key where they say nothing else.
func proofSealForgeries(t testing.TB, w *world) []proofForgery {
	good, ok := w.proof(t, statusOf(t, w)), statusWant(t, w)
	header, payload := split(t, good)
	g := w.sign(t, claims(t))
	gHeader, gPayload := split(t, g)
	raw, err := w.bundle.Marshal()
	must(t, err)
	parts, gParts := strings.Split(good, "."), strings.Split(g, ".")
	later := statusOf(t, w)
	later.Revision++
	in := func(name, rule, old, replacement string, reason grant.Reason) proofForgery {
		return proofForgery{name, rule, seal(private(0), header, swap(t, payload, old, replacement)), ok, reason}
	}
	fenceMember := `"fence":` + claims(t).Fence.String()
	all := []proofForgery{
		{"empty", "T22", "", ok, grant.ReasonSegments},
		{"oversized", "T22", good + strings.Repeat("A", grant.MaxBytes), ok, grant.ReasonTooLarge},
		{"truncated", "T5", good[:len(good)-2], ok, grant.ReasonSignature},
		{"extended", "T5", good + "AAAA", ok, grant.ReasonSignature},
		{"padded", "T6", good + "==", ok, grant.ReasonEncoding},
		{"a grant", "T9", g, ok, grant.ReasonType},
		{"a grant that calls itself a proof", "T9", seal(private(0), header, gPayload), ok, grant.ReasonUnknownMember},
		{"a proof that calls itself a grant", "T9", seal(private(0), gHeader, payload), ok, grant.ReasonType},
		{"a trust bundle", "T9", string(raw), ok, grant.ReasonSegments},
		{"the seal of the grant", "T9", parts[0] + "." + parts[1] + "." + gParts[2], ok, grant.ReasonSignature},
		{"the claims of a later proof", "T5", parts[0] + "." + strings.Split(w.proof(t, later), ".")[1] + "." + parts[2], ok, grant.ReasonSignature},
		{"wrong key under the right kid", "T3", seal(private(2), header, payload), ok, grant.ReasonSignature},
		{"unknown key", "R13", seal(private(2), swap(t, header, w.present.ID(), key(t, 2).ID()), payload), ok, grant.ReasonUnknownKey},
		{"alg none", "T8", b64([]byte(swap(t, header, "EdDSA", "none"))) + "." + parts[1] + ".", ok, grant.ReasonAlgorithm},
		{"alg HS256", "T8", seal(private(0), swap(t, header, "EdDSA", "HS256"), payload), ok, grant.ReasonAlgorithm},
		{"embedded jwk", "T3", seal(private(2), swap(t, header, `,"kid"`, `,"jwk":{},"kid"`), payload), ok, grant.ReasonUnknownMember},
		in("duplicate member", "T7", `"lease":`, `"lease":"evil","lease":`, grant.ReasonDuplicateMember),
		in("case variant", "T7", `"lease":`, `"LEASE":"evil","lease":`, grant.ReasonUnknownMember),
		in("next fence", "R14a", `"lease":`, `"next":9,"lease":`, grant.ReasonUnknownMember),
		in("missing member", "R12", `,"revision":1300`, ``, grant.ReasonMissingMember),
		in("deep", "T22", `"HELD"`, `["HELD"]`, grant.ReasonTooDeep),
		in("white space", "T6", `,"lease"`, `, "lease"`, grant.ReasonMalformed),
		in("another order", "T6", `{"epoch":5,"exp":1784462410,`, `{"exp":1784462410,"epoch":5,`, grant.ReasonNotCanonical),
		in("a float", "T6", `"revision":1300`, `"revision":1300.0`, grant.ReasonNumber),
		in("fence 0", "R12", fenceMember, `"fence":0`, grant.ReasonFenceRange),
		in("huge fence", "T19", fenceMember, `"fence":9007199254740992`, grant.ReasonFenceRange),
		in("no digest", "R12", statusOf(t, w).GrantDigest.String(), ``, grant.ReasonValue),
		in("version 2", "R12", `"version":1`, `"version":2`, grant.ReasonVersion),
		in("another domain", "T10", `"iss":"billing"`, `"iss":"staging"`, grant.ReasonDomain),
		in("epoch before the fence's", "R12", `"epoch":5`, `"epoch":3`, grant.ReasonEpoch),
		in("epoch that is none", "R12", `"epoch":5`, `"epoch":1048576`, grant.ReasonEpoch),
		in("epoch above the current one", "R12", `"epoch":5`, `"epoch":6`, grant.ReasonEpochAhead),
		in("fence of a revoked epoch", "T27", fenceMember, fmt.Sprintf(`"fence":%d`, uint64(fence(t, 2, 41))), grant.ReasonEpochRevoked),
		in("lives for more than a minute", "T14", `"exp":1784462410`, `"exp":1784462461`, grant.ReasonValue),
		in("expires before it is issued", "T14", `"exp":1784462410`, `"exp":1784462399`, grant.ReasonValue),
	}
	for _, state := range []string{"FREE", "EXPIRED", "RELEASED", "REVOKED", "held", ""} {
		all = append(all, in("state "+state, "R12", `"HELD"`, `"`+state+`"`, grant.ReasonValue))
	}
	retired := seal(private(1), swap(t, header, w.present.ID(), w.retired.ID()), payload)
	return append(all, proofForgery{"epoch after the key's last", "R13", retired, ok, grant.ReasonEpochOfKey})
}

func proofBindingForgeries(t testing.TB, w *world) []proofForgery {
	good := w.proof(t, statusOf(t, w))
	but := func(change func(*grant.StatusWant)) grant.StatusWant {
		ok := statusWant(t, w)
		change(&ok)
		return ok
	}
	of := func(change func(*grant.StatusClaims)) string {
		c := statusOf(t, w)
		change(&c)
		return w.proof(t, c)
	}
	at := func(d time.Duration) grant.StatusWant {
		return but(func(want *grant.StatusWant) { want.Now = noon.Add(d) })
	}
	return []proofForgery{
		{"good", "R12", good, statusWant(t, w), ""},
		{"another resource", "T10", of(func(c *grant.StatusClaims) { c.Resource = "doc/b" }), statusWant(t, w), grant.ReasonResource},
		{"another lease", "T14", of(func(c *grant.StatusClaims) { c.LeaseID = "lease-2" }), statusWant(t, w), grant.ReasonProofGrant},
		{"another fence", "T14", of(func(c *grant.StatusClaims) { c.Fence++ }), statusWant(t, w), grant.ReasonProofGrant},
		{"another grant of the tenure", "T14", of(func(c *grant.StatusClaims) { c.GrantDigest[0]++ }), statusWant(t, w), grant.ReasonProofGrant},
		{"no grant", "R14", good, but(func(want *grant.StatusWant) { want.Grant = grant.Verified{} }), grant.ReasonResource},
		{"pending", "R16a", of(func(c *grant.StatusClaims) { c.State = lastword.StatePending }), statusWant(t, w), grant.ReasonProofPending},
		{"pending is enough", "R16a", of(func(c *grant.StatusClaims) { c.State = lastword.StatePending }), but(func(want *grant.StatusWant) { want.Pending = true }), ""},
		{"the last moment", "T14", good, at(8*time.Second - time.Millisecond), ""},
		{"expired", "T14", good, at(time.Minute), grant.ReasonProofExpired},
		{"may have expired, within the skew", "T14", good, at(8 * time.Second), grant.ReasonProofExpired},
		{"ahead within the skew", "R12", good, at(-2 * time.Second), ""},
		{"ahead of the clock", "R12", good, at(-2*time.Second - time.Millisecond), grant.ReasonProofAhead},
		{"no clock", "R12", good, but(func(want *grant.StatusWant) { want.Now = time.Time{} }), grant.ReasonProofAhead},
		{"released since", "T14", good, but(func(want *grant.StatusWant) { want.Seen.Revision++ }), grant.ReasonProofOld},
		{"of before an epoch that was seen", "T14", good, but(func(want *grant.StatusWant) { want.Seen = grant.StatusMark{Epoch: 6} }), grant.ReasonProofOld},
		{"of a new epoch, whatever the revision", "T14", good, but(func(want *grant.StatusWant) { want.Seen = grant.StatusMark{Epoch: 4, Revision: 9999} }), ""},
		{"bundle older than one that was seen", "R13", good, but(func(want *grant.StatusWant) { want.Bundle.Sequence = 12 }), grant.ReasonBundleRollback},
	}
}

// R12, T3, T5 to T10, T14: every class of forged status proof is refused for its own
// reason, before and after the good one was opened.
func TestOpenStatusRefusesEveryForgeryForItsReason(t *testing.T) {
	w := newWorld(t)
	cold, warm := w.verifier(t, grant.VerifierConfig{Memory: -1}), w.verifier(t, grant.VerifierConfig{})
	if _, err := warm.OpenStatus(t.Context(), w.proof(t, statusOf(t, w)), statusWant(t, w)); err != nil {
		t.Fatalf("the good proof: %v", err)
	}
	for _, f := range proofForgeries(t, w) {
		t.Run(f.name, func(t *testing.T) {
			for _, v := range []*grant.Verifier{cold, warm, warm} {
				got, err := v.OpenStatus(t.Context(), f.proof, f.want)
				if f.reason == "" {
					if err != nil || !got.Valid() {
						t.Fatalf("%s: %v", f.rule, err)
					}
					continue
				}
				if reasonOf(err) != string(f.reason) {
					t.Fatalf("%s: got %s, want %s", f.rule, reasonOf(err), f.reason)
				}
				if got.Valid() || !errors.Is(err, lastword.ErrUnverified) {
					t.Fatalf("%s: refused with %v, valid %v", f.rule, err, got.Valid())
				}
				if f.proof != "" && strings.Contains(err.Error(), f.proof) {
					t.Fatalf("T17: the error quotes the proof: %v", err)
				}
			}
		})
	}
}

func TestAStatusProofSaysWhatWasSigned(t *testing.T) {
	w := newWorld(t)
	c := statusOf(t, w)
	got, err := w.verifier(t, grant.VerifierConfig{}).OpenStatus(t.Context(), w.proof(t, c), statusWant(t, w))
	if err != nil || got.Claims() != c {
		t.Fatalf("got %+v, %v", got.Claims(), err)
	}
	if m := got.Claims().Mark(); m != (grant.StatusMark{Epoch: 5, Revision: 1300}) || m.Before(m) || !(grant.StatusMark{Epoch: 4, Revision: 9999}).Before(m) {
		t.Fatalf("marks are in the wrong order: %+v", m)
	}
	var none grant.VerifiedStatus
	if none.Valid() || none.Claims() != (grant.StatusClaims{}) {
		t.Fatal("the zero value says something")
	}
	wrong := statusWant(t, w)
	wrong.Skew = -1
	if _, err := w.verifier(t, grant.VerifierConfig{}).OpenStatus(t.Context(), w.proof(t, c), wrong); !errors.Is(err, lastword.ErrInvalid) {
		t.Fatalf("a negative skew: %v", err)
	}
}

func TestSignStatusRefusesWhatNoProofCanCarry(t *testing.T) {
	w := newWorld(t)
	for name, change := range map[string]func(*grant.StatusClaims){
		"another domain":   func(c *grant.StatusClaims) { c.Domain = "staging" },
		"no lease":         func(c *grant.StatusClaims) { c.LeaseID = "" },
		"resource":         func(c *grant.StatusClaims) { c.Resource = "a//b" },
		"no fence":         func(c *grant.StatusClaims) { c.Fence = 0 },
		"no digest":        func(c *grant.StatusClaims) { c.GrantDigest = lastword.Digest{} },
		"a state not held": func(c *grant.StatusClaims) { c.State = lastword.StateReleased },
		"an older epoch":   func(c *grant.StatusClaims) { c.Epoch = 3 },
		"a huge epoch":     func(c *grant.StatusClaims) { c.Epoch = lastword.MaxEpoch + 1 },
		"a huge revision":  func(c *grant.StatusClaims) { c.Revision = grant.MaxNumber + 1 },
		"no life":          func(c *grant.StatusClaims) { c.Expires = c.IssuedAt },
		"too long a life":  func(c *grant.StatusClaims) { c.Expires = c.IssuedAt.Add(grant.MaxStatusLife + time.Second) },
		"a fraction":       func(c *grant.StatusClaims) { c.IssuedAt = c.IssuedAt.Add(1) },
	} {
		c := statusOf(t, w)
		change(&c)
		if p, err := w.signer.SignStatus(c); !errors.Is(err, lastword.ErrInvalid) || p != "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// T9: nothing that is signed or served passes for anything else.
func TestNoArtefactPassesForAnother(t *testing.T) {
	w := newWorld(t)
	raw, err := w.bundle.Marshal()
	must(t, err)
	artefacts := map[string]string{"grant": w.sign(t, claims(t)), "proof": w.proof(t, statusOf(t, w)), "bundle": string(raw), "key file": string(keyPEM(t, private(0)))}
	v := w.verifier(t, grant.VerifierConfig{})
	verifiers := map[string]func(string) error{
		"grant":  func(s string) error { return second(v.Open(t.Context(), s, want(t))) },
		"proof":  func(s string) error { return second(v.OpenStatus(t.Context(), s, statusWant(t, w))) },
		"bundle": func(s string) error { return second(grant.ParseBundle([]byte(s))) },
	}
	for range 2 { // the second time everything good is remembered
		for kind, verify := range verifiers {
			for name, artefact := range artefacts {
				if err := verify(artefact); (err == nil) != (kind == name) {
					t.Errorf("a %s as a %s: %v", name, kind, err)
				}
			}
		}
	}
}

// R13, T27: revocation reaches a proof that was opened before.
func TestRevocationReachesOpenedProofs(t *testing.T) {
	w := newWorld(t)
	s := &source{memory: w.bundle}
	v, err := grant.NewVerifier(domain, s, grant.VerifierConfig{})
	must(t, err)
	proof, need := w.proof(t, statusOf(t, w)), statusWant(t, w)
	must(t, second(v.OpenStatus(t.Context(), proof, need)))
	s.memory = bundleOf(t, grant.BundleInfo{Sequence: 12, CurrentEpoch: 5, MinimumEpoch: 3}, w.retired)
	s.fresh = s.memory
	if _, err := v.OpenStatus(t.Context(), proof, need); reasonOf(err) != "UNKNOWN_KEY" {
		t.Fatalf("got %v", err)
	}
}

// T5: a changed byte of a proof never verifies.
func FuzzNoChangedByteOfAProofVerifies(f *testing.F) {
	w := newWorld(f)
	v := w.verifier(f, grant.VerifierConfig{})
	good, need := w.proof(f, statusOf(f, w)), statusWant(f, w)
	f.Add(uint16(0), byte(1))
	f.Add(uint16(len(good)-1), byte(4))
	for range 8 {
		f.Add(uint16(rand.UintN(uint(len(good)))), byte(rand.UintN(256)))
	}
	f.Fuzz(func(t *testing.T, at uint16, mask byte) {
		b := []byte(good)
		b[int(at)%len(b)] ^= mask
		if _, err := v.OpenStatus(t.Context(), string(b), need); (err == nil) != (mask == 0) {
			t.Fatalf("byte %d xor %d: %v", int(at)%len(b), mask, err)
		}
	})
}

// T5, T6: whatever bytes come, only a proof that was signed opens.
func FuzzOpenStatusOnlySignedBytes(f *testing.F) {
	w := newWorld(f)
	v := w.verifier(f, grant.VerifierConfig{})
	good, need := w.proof(f, statusOf(f, w)), statusWant(f, w)
	f.Add(good)
	for _, c := range proofForgeries(f, w) {
		f.Add(c.proof)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := v.OpenStatus(t.Context(), s, need)
		switch {
		case (err == nil) != got.Valid():
			t.Fatalf("valid %v with error %v", got.Valid(), err)
		case err == nil && s != good:
			t.Fatalf("opened what nobody signed: %q", s)
		case err != nil && grant.ReasonOf(err) == "":
			t.Fatalf("refused without a reason: %v", err)
		}
		said, bad := grant.InspectStatus(s)
		switch {
		case err == nil && (bad != nil || said.Claims != got.Claims()):
			t.Fatalf("opened, and inspected as %+v, %v", said.Claims, bad)
		case bad != nil && (said != (grant.UnverifiedStatus{}) || grant.ReasonOf(bad) == "" || len(s) > 9 && strings.Contains(bad.Error(), s)):
			t.Fatalf("%+v beside %v", said, bad)
		}
	})
}

func BenchmarkOpenStatusWarm(b *testing.B) {
	w := newWorld(b)
	v := w.verifier(b, grant.VerifierConfig{})
	proof, need, ctx := w.proof(b, statusOf(b, w)), statusWant(b, w), b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := v.OpenStatus(ctx, proof, need); err != nil {
			b.Fatal(err)
		}
	}
}
