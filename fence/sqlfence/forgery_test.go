package sqlfence_test

import (
	"context"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"database/sql"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/sqlfence"
	"github.com/lastword/lastword/grant"
)

// forger knows everything but the private key that the bundle's present one belongs
// to; where a class of forgery needs that, it has been stolen.
type forger struct {
	*testing.T
	keys    [3]ed25519.PrivateKey // present, retired, unknown to the bundle
	ids     [3]string
	signers [3]*grant.Signer
	bundle  grant.Bundle
	db      *sql.DB
	fence   *sqlfence.Fence
	good    grant.Claims
}

const guarded = lastword.Resource("doc/a")

func newForger(t *testing.T) *forger {
	t.Helper()
	f := &forger{T: t}
	dir := t.TempDir()
	var keys [3]grant.Key
	for i := range f.keys {
		f.keys[i] = ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(rune('A'+i)), ed25519.SeedSize)))
		der, err := x509.MarshalPKCS8PrivateKey(f.keys[i])
		f.must(err)
		path := filepath.Join(dir, fmt.Sprint(i))
		f.must(os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600))
		keys[i], err = grant.LoadKey(path)
		f.must(err)
		f.ids[i] = keys[i].ID()
		f.signers[i], err = grant.NewSigner(domain, keys[i])
		f.must(err)
	}
	both, err := grant.NewSigner(domain, keys[0], keys[1])
	f.must(err)
	last := uint32(4)
	f.bundle, err = both.Bundle(grant.BundleInfo{
		Sequence: 7, CurrentEpoch: 5, MinimumEpoch: 3,
		Epochs: map[string]grant.EpochRange{f.ids[0]: {First: 5}, f.ids[1]: {First: 0, Last: &last}},
	})
	f.must(err)
	f.db, _ = database(t)
	f.fence = f.guard(nil)
	f.good = grant.Claims{
		Domain: domain, Resource: guarded, Owner: "worker-a", RequestID: "r", LeaseID: "lease-7f3a", Fence: f.at(5, 41), Revision: 1234,
		PolicyGeneration: 7, Root: lastword.DigestOf([]byte("work")), Class: lastword.ClassWrite,
		TTL: 30 * time.Second, IssuedAt: time.Unix(1_800_000_000, 0).UTC(),
	}
	return f
}

func (f *forger) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func (f *forger) at(epoch uint32, counter uint64) lastword.Token {
	f.Helper()
	token, err := lastword.MakeToken(epoch, counter)
	f.must(err)
	return token
}

// guard is another gate at the same database.
func (f *forger) guard(change func(*fence.Config)) *sqlfence.Fence {
	f.Helper()
	v, err := grant.NewVerifier(domain, grant.StaticBundle(f.bundle), grant.VerifierConfig{})
	f.must(err)
	cfg := fence.Config{
		Domain: domain, Verifier: v, Mode: fence.Proof, Caller: "worker-a", MinPolicyGeneration: 7, Step: 1000,
		Now: func() time.Time { return wall },
	}
	if change != nil {
		change(&cfg)
	}
	return guard(f.T, f.db, sqlfence.Config{Config: cfg})
}

func (f *forger) sign(key int, change func(*grant.Claims)) string {
	f.Helper()
	c := f.good
	if change != nil {
		change(&c)
	}
	g, _, err := f.signers[key].Sign("", c)
	f.must(err)
	return g
}

func (f *forger) prove(change func(*grant.StatusClaims)) string {
	f.Helper()
	_, digest, err := f.signers[0].Sign("", f.good)
	f.must(err)
	c := grant.StatusClaims{
		Domain: domain, Resource: guarded, LeaseID: f.good.LeaseID, Fence: f.good.Fence, GrantDigest: digest,
		State: lastword.StateHeld, Epoch: 5, Revision: 2000, IssuedAt: wall, Expires: wall.Add(20 * time.Second),
	}
	if change != nil {
		change(&c)
	}
	p, err := f.signers[0].SignStatus(c)
	f.must(err)
	return p
}

func unpack(t *testing.T, g string) (header, payload string) {
	t.Helper()
	parts := strings.Split(g, ".")
	h, err1 := base64.RawURLEncoding.DecodeString(parts[0])
	p, err2 := base64.RawURLEncoding.DecodeString(parts[1])
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return string(h), string(p)
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// seal signs anything at all.
func (f *forger) seal(key int, header, payload string) string {
	input := b64([]byte(header)) + "." + b64([]byte(payload))
	return input + "." + b64(ed25519.Sign(f.keys[key], []byte(input)))
}

func swapped(t *testing.T, s, old, replacement string) string {
	t.Helper()
	if strings.Count(s, old) != 1 {
		t.Fatalf("%q occurs %d times in %s", old, strings.Count(s, old), s)
	}
	return strings.Replace(s, old, replacement, 1)
}

// forged is one call that must not be admitted, and why.
type forged struct {
	name, rule string
	grant      string
	proof      string // "" is the good one
	class      lastword.Class
	verdict    lastword.Verdict // "" is UNVERIFIED
	reason     grant.Reason
	later      time.Duration // the resource's clock
}

func (f *forger) table() []forged {
	good, proof := f.sign(0, nil), f.prove(nil)
	header, payload := unpack(f.T, good)
	parts, other := strings.Split(good, "."), strings.Split(f.sign(0, func(c *grant.Claims) { c.Fence++ }), ".")
	public := f.keys[0].Public().(ed25519.PublicKey)
	jwk := swapped(f.T, header, `,"kid"`, `,"jwk":{"kty":"OKP","crv":"Ed25519","x":"`+b64(f.keys[2].Public().(ed25519.PublicKey))+`"},"kid"`)
	macInput := b64([]byte(swapped(f.T, header, "EdDSA", "HS256"))) + "." + parts[1]
	mac := hmac.New(sha256.New, public)
	mac.Write([]byte(macInput))
	fenceMember := `"fence":` + f.good.Fence.String()
	in := func(old, replacement string) string {
		return f.seal(0, header, swapped(f.T, payload, old, replacement))
	}
	with := func(change func(*grant.Claims)) string { return f.sign(0, change) }
	elsewhere := with(func(c *grant.Claims) { c.Resource = "doc/b" })
	topFence, err := lastword.MakeToken(5, lastword.MaxCounter)
	f.must(err)
	return []forged{
		{name: "wrong key with the right kid", rule: "T3", grant: f.seal(2, header, payload), reason: grant.ReasonSignature},
		{name: "embedded key", rule: "T3", grant: f.seal(2, jwk, payload), reason: grant.ReasonUnknownMember},
		{name: "alg none", rule: "T8", grant: b64([]byte(swapped(f.T, header, "EdDSA", "none"))) + "." + parts[1] + ".", reason: grant.ReasonAlgorithm},
		{name: "HS256 with the public key", rule: "T8", grant: macInput + "." + b64(mac.Sum(nil)), reason: grant.ReasonAlgorithm},
		{name: "swapped fields", rule: "T5", grant: parts[0] + "." + b64([]byte(strings.NewReplacer("worker-a", "lease-7f3a", "lease-7f3a", "worker-a").Replace(payload))) + "." + parts[2], reason: grant.ReasonSignature},
		{name: "claims of another grant", rule: "T5", grant: parts[0] + "." + other[1] + "." + parts[2], reason: grant.ReasonSignature},
		{name: "truncated", rule: "T5", grant: good[:len(good)-2], reason: grant.ReasonSignature},
		{name: "cut in the middle", rule: "T5", grant: good[:len(parts[0])+9], reason: grant.ReasonSegments},
		{name: "extended", rule: "T5", grant: good + "AAAA", reason: grant.ReasonSignature},
		{name: "another domain", rule: "T10", grant: in(`"iss":"`+domain+`"`, `"iss":"staging"`), reason: grant.ReasonDomain},
		{name: "another resource", rule: "T10", grant: elsewhere, reason: grant.ReasonResource},
		{name: "another owner", rule: "T1", grant: with(func(c *grant.Claims) { c.Owner = "worker-b" }), reason: grant.ReasonOwner},
		{name: "another root", rule: "§4", grant: with(func(c *grant.Claims) { c.Root = lastword.DigestOf([]byte("other work")) }), verdict: lastword.RootMismatch},
		{name: "another class", rule: "T25", grant: good, class: "delete", reason: grant.ReasonClass},
		{name: "a write with a grant of advance", rule: "T25", grant: with(func(c *grant.Claims) { c.Class = lastword.ClassAdvance }), reason: grant.ReasonClass},
		{name: "older policy generation", rule: "T26", grant: with(func(c *grant.Claims) { c.PolicyGeneration = 6 }), reason: grant.ReasonPolicyRevoked},
		{name: "revoked key", rule: "R13", grant: f.sign(2, nil), reason: grant.ReasonUnknownKey},
		{name: "epoch after the key's last", rule: "R13", grant: f.sign(1, nil), reason: grant.ReasonEpochOfKey},
		{name: "epoch before the key's first", rule: "R13", grant: with(func(c *grant.Claims) { c.Fence = f.at(4, 41) }), reason: grant.ReasonEpochOfKey},
		{name: "epoch below the minimum", rule: "T27", grant: f.sign(1, func(c *grant.Claims) { c.Fence = f.at(2, 41) }), reason: grant.ReasonEpochRevoked},
		{name: "epoch above the bundle's current one", rule: "R12", grant: with(func(c *grant.Claims) { c.Fence = f.at(6, 1) }), reason: grant.ReasonEpochAhead},
		{name: "epoch is not the fence's", rule: "R12", grant: in(`"epoch":5`, `"epoch":6`), reason: grant.ReasonEpoch},
		{name: "expired proof", rule: "T14", grant: good, proof: proof, later: 19 * time.Second, reason: grant.ReasonProofExpired},
		{name: "proof of tomorrow", rule: "T14", grant: good, proof: proof, later: -time.Hour, reason: grant.ReasonProofAhead},
		{name: "proof of a released lease", rule: "T14", grant: good, proof: f.prove(func(c *grant.StatusClaims) { c.Revision = 1999 }), reason: grant.ReasonProofOld},
		{name: "proof of another grant", rule: "T9", grant: good, proof: f.prove(func(c *grant.StatusClaims) { c.LeaseID = "lease-0000" }), reason: grant.ReasonProofGrant},
		{name: "proof of a pending tenure", rule: "R12", grant: good, proof: f.prove(func(c *grant.StatusClaims) { c.State = lastword.StatePending }), reason: grant.ReasonProofPending},
		{name: "proof offered as grant", rule: "T9", grant: proof, reason: grant.ReasonType},
		{name: "grant offered as proof", rule: "T9", grant: good, proof: good, reason: grant.ReasonType},
		{name: "no proof", rule: "T24", grant: good, proof: "-", verdict: lastword.StatusUnavailable},
		{name: "oversized", rule: "T22", grant: good + strings.Repeat("A", grant.MaxBytes), reason: grant.ReasonTooLarge},
		{name: "deep", rule: "T22", grant: in(fenceMember, `"fence":`+strings.Repeat("[", 500)+strings.Repeat("]", 500)), reason: grant.ReasonTooDeep},
		{name: "duplicate member", rule: "T7", grant: in(`"sub":"`, `"sub":"evil","sub":"`), reason: grant.ReasonDuplicateMember},
		{name: "duplicate fence", rule: "T7", grant: in(fenceMember, fenceMember+`,"fence":9`), reason: grant.ReasonDuplicateMember},
		{name: "fence 0", rule: "KF-24", grant: in(fenceMember, `"fence":0`), reason: grant.ReasonFenceRange},
		{name: "fence 2^53", rule: "KF-18", grant: in(fenceMember, `"fence":9007199254740992`), reason: grant.ReasonFenceRange},
		{name: "fence 2^63 - 1", rule: "KF-24", grant: in(fenceMember, `"fence":9223372036854775807`), reason: grant.ReasonNumber},
		{name: "huge fence with a leaked key", rule: "T19", grant: with(func(c *grant.Claims) { c.Fence = topFence }), verdict: lastword.FenceJump},
		{name: "a stale fence", rule: "P1", grant: with(func(c *grant.Claims) { c.Fence = f.at(5, 40) }), verdict: lastword.StaleOwner},
		{name: "no grant", rule: "KF-24", grant: "", verdict: lastword.FenceRequired},
	}
}

// The first line of the acceptance of the seal: every class of forgery is refused at a
// real place, each for its own reason, and record, receipts and business rows are
// byte-identical before and after. (P3, R12, R14, T1, T3, T5 to T10, T14, T19, T22, T24
// to T27, KF-18, KF-24)
func TestNoForgeryChangesARowOfARealDatabase(t *testing.T) {
	f := newForger(t)
	_, err := f.fence.ApplyMutation(t.Context(), guarded, lastword.Mutation{
		Grant: f.sign(0, nil), StatusProof: f.prove(nil), Operation: "op-1", Payload: lastword.DigestOf([]byte("one")),
	}, func(ctx context.Context, tx *sql.Tx) error { return write(ctx, tx, guarded, "op-1", "one") })
	f.must(err)
	rows := func() string {
		return dump(t, f.db, `SELECT * FROM lastword_fence`) + dump(t, f.db, `SELECT * FROM lastword_receipt`) +
			dump(t, f.db, `SELECT * FROM lastword_tombstone`) + dump(t, f.db, `SELECT * FROM doc`) + dump(t, f.db, `SELECT * FROM effect`)
	}
	before := rows()
	reasons := map[string]string{}
	for _, c := range f.table() {
		t.Run(c.name, func(t *testing.T) { reasons[c.name] = f.refuses(t, c, before, rows) })
	}
	if len(reasons) < 38 {
		t.Errorf("only %d classes were walked", len(reasons))
	}
	// The good one still goes through: nothing above was refused for another reason.
	_, err = f.fence.ApplyMutation(t.Context(), guarded, lastword.Mutation{
		Grant: f.sign(0, nil), StatusProof: f.prove(nil), Operation: "op-2", Payload: lastword.DigestOf([]byte("two")),
	}, func(ctx context.Context, tx *sql.Tx) error { return write(ctx, tx, guarded, "op-2", "two") })
	f.must(err)
}

// refuses offers c at every door, and returns the reason.
func (f *forger) refuses(t *testing.T, c forged, before string, rows func() string) string {
	verdict := c.verdict
	if verdict == "" {
		verdict = lastword.Unverified
	}
	gate := f.guard(func(cfg *fence.Config) {
		cfg.Now = func() time.Time { return wall.Add(c.later) }
	})
	proof := c.proof
	switch proof {
	case "":
		proof = f.prove(nil)
	case "-":
		proof = ""
	}
	m := lastword.Mutation{
		Grant: c.grant, StatusProof: proof, Operation: "forged", Class: c.class, Payload: lastword.DigestOf([]byte("forged")),
	}
	if v := c.verdict; v == lastword.RootMismatch || v == lastword.FenceJump || v == lastword.StaleOwner {
		m.StatusProof = f.proofOf(c.grant) // what the record refuses comes with a proof that was forged with it
	}
	ran := false
	effect := func(ctx context.Context, tx *sql.Tx) error {
		ran = true
		return write(ctx, tx, guarded, "forged", "forged")
	}
	check := func(door string, err error) {
		t.Helper()
		var e *lastword.Error
		if !errors.As(err, &e) || e.Code != verdict.Code() || grant.ReasonOf(err) != c.reason {
			t.Errorf("%s at %s: got %v (reason %q), want %s %s", c.rule, door, err, grant.ReasonOf(err), verdict, c.reason)
		}
		if ran {
			t.Errorf("%s at %s: the effect ran", c.rule, door)
		}
		if c.grant != "" && err != nil && strings.Contains(err.Error(), c.grant) {
			t.Errorf("T17 at %s: the error quotes the grant", door)
		}
		if after := rows(); after != before {
			t.Errorf("%s at %s changed\n%s\nto\n%s", c.rule, door, before, after)
		}
	}
	_, err := gate.ApplyMutation(t.Context(), guarded, m, effect)
	check("apply", err)
	tx, err := f.db.BeginTx(t.Context(), nil)
	f.must(err)
	_, err = gate.WithinMutation(t.Context(), tx, guarded, m)
	f.must(tx.Rollback())
	check("within", err)
	return string(c.reason) + string(verdict)
}

// proofOf is what who has stolen the key would carry beside a grant.
func (f *forger) proofOf(signed string) string {
	f.Helper()
	seen, err := grant.Inspect(signed)
	f.must(err)
	parts := strings.Split(signed, ".")
	return f.prove(func(c *grant.StatusClaims) {
		c.LeaseID, c.Fence, c.GrantDigest = seen.Claims.LeaseID, seen.Claims.Fence, lastword.DigestOf([]byte(parts[0]+"."+parts[1]))
		c.Revision = 5000
	})
}
