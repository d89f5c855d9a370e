package grant_test

import (
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
)

// The vectors for other languages are made of the tables that are tested here:
//
//	go test ./grant -run Vector -update
var update = flag.Bool("update", false, "write spec/vectors anew")

// classOf is the step of the verification in spec/GRANT.md that finds a failure. Another
// language need not tell the reasons of one class apart.
func classOf(r grant.Reason) string {
	switch r {
	case "":
		return "accept"
	case grant.ReasonTooLarge, grant.ReasonSegments, grant.ReasonEncoding, grant.ReasonMalformed, grant.ReasonTooDeep,
		grant.ReasonUnknownMember, grant.ReasonDuplicateMember, grant.ReasonMissingMember, grant.ReasonNumber,
		grant.ReasonFenceRange, grant.ReasonValue, grant.ReasonNotCanonical:
		return "shape"
	case grant.ReasonType, grant.ReasonVersion:
		return "type"
	case grant.ReasonUnknownKey:
		return "key"
	case grant.ReasonAlgorithm:
		return "algorithm"
	case grant.ReasonSignature:
		return "signature"
	case grant.ReasonDomain:
		return "domain"
	case grant.ReasonEpoch, grant.ReasonEpochOfKey, grant.ReasonEpochRevoked, grant.ReasonEpochAhead:
		return "epoch"
	case grant.ReasonResource, grant.ReasonOwner, grant.ReasonRoot, grant.ReasonProofGrant:
		return "binding"
	case grant.ReasonClass:
		return "class"
	case grant.ReasonPolicy, grant.ReasonPolicyRevoked:
		return "policy"
	case grant.ReasonProofPending:
		return "state"
	case grant.ReasonProofAhead, grant.ReasonProofExpired:
		return "time"
	case grant.ReasonProofOld:
		return "revision"
	case grant.ReasonBundleRollback:
		return "rollback"
	case grant.ReasonBundleUnavailable, grant.ReasonBundleInvalid, grant.ReasonBundleLeap:
		return "bundle" // of no vector
	}
	return "?"
}

// testKey is a key whose private half everybody knows.
type testKey struct {
	ID   string `json:"kid"`
	Seed string `json:"private_seed_hex"`
}

func testKeys(t testing.TB) []testKey {
	var all []testKey
	for n := range byte(3) {
		all = append(all, testKey{key(t, n).ID(), hex.EncodeToString(private(n).Seed())})
	}
	return all
}

const testKeysOnly = " The keys are for tests only: their private halves are public."

// grantVectors is the shape of spec/vectors/grant.json.
type grantVectors struct {
	About    string          `json:"about"`
	TestKeys []testKey       `json:"test_keys"`
	Domain   string          `json:"domain"`
	Bundle   json.RawMessage `json:"bundle"`
	Accepted grantVector     `json:"accepted"`
	Digest   string          `json:"accepted_digest"`
	Header   string          `json:"accepted_header"`
	Claims   string          `json:"accepted_claims"`
	Refused  []grantVector   `json:"refused"`
}

type grantVector struct {
	Name                string  `json:"name,omitempty"`
	Rule                string  `json:"rule,omitempty"`
	Class               string  `json:"class"`
	Reason              string  `json:"reason,omitempty"`
	Grant               string  `json:"grant"`
	Resource            string  `json:"want_resource"`
	Owner               string  `json:"want_owner,omitempty"`
	Root                *string `json:"want_root"`
	WantClass           string  `json:"want_class,omitempty"`
	PolicyGeneration    uint64  `json:"want_policy,omitempty"`
	MinPolicyGeneration uint64  `json:"want_minimum_policy,omitempty"`
}

func (f forgery) vector() grantVector {
	v := grantVector{
		Name: f.name, Rule: f.rule, Class: classOf(f.reason), Reason: string(f.reason), Grant: f.grant,
		Resource: string(f.want.Resource), Owner: f.want.Owner, WantClass: string(f.want.Class),
		PolicyGeneration: f.want.PolicyGeneration, MinPolicyGeneration: f.want.MinPolicyGeneration,
	}
	if f.want.Root != nil {
		root := f.want.Root.String()
		v.Root = &root
	}
	return v
}

// proofVectors is the shape of spec/vectors/proof.json.
type proofVectors struct {
	About    string          `json:"about"`
	TestKeys []testKey       `json:"test_keys"`
	Domain   string          `json:"domain"`
	Bundle   json.RawMessage `json:"bundle"`
	Grant    string          `json:"grant"`
	Proofs   []proofVector   `json:"proofs"`
}

type proofVector struct {
	Name     string `json:"name"`
	Rule     string `json:"rule"`
	Class    string `json:"class"`
	Reason   string `json:"reason,omitempty"`
	Proof    string `json:"proof"`
	NoGrant  bool   `json:"no_grant,omitempty"`
	Pending  bool   `json:"want_pending,omitempty"`
	Now      int64  `json:"now_ms"` // since 1970; before it if negative
	Skew     int64  `json:"skew_ms"`
	Epoch    uint32 `json:"seen_epoch"`
	Revision uint64 `json:"seen_revision"`
	Sequence uint64 `json:"seen_bundle_sequence,omitempty"`
}

// bundleVectors is the shape of spec/vectors/bundle.json.
type bundleVectors struct {
	About    string         `json:"about"`
	TestKeys []testKey      `json:"test_keys"`
	Bundles  []bundleVector `json:"bundles"`
}

type bundleVector struct {
	Name     string `json:"name"`
	Class    string `json:"class"`
	Says     string `json:"says,omitempty"`
	Bundle   string `json:"bundle"`
	Sequence uint64 `json:"seen_sequence,omitempty"`
	Minimum  uint32 `json:"seen_minimum_epoch,omitempty"`
}

func writeVectors(t *testing.T, name string, content any) {
	t.Helper()
	path := filepath.Join("..", "spec", "vectors", name)
	b, err := json.MarshalIndent(content, "", "  ")
	must(t, err)
	b = append(b, '\n')
	if *update {
		must(t, os.WriteFile(path, b, 0o644))
	}
	if stored, err := os.ReadFile(path); err != nil || string(stored) != string(b) {
		t.Fatalf("%s differs from the table (%v); look at the change, then run go test ./grant -run Vector -update", path, err)
	}
}

func TestGrantVectorsAreTheForgeries(t *testing.T) {
	w := newWorld(t)
	bundle, err := w.bundle.Marshal()
	must(t, err)
	c := claims(t)
	digest, err := w.signer.Digest("", c)
	must(t, err)
	file := grantVectors{
		About:    "lockGrant.v1: one grant to accept, and grants to refuse, each with the first reason of R12 and its class, the step that finds it; see spec/GRANT.md. want_root null compares nothing, want_class absent is write." + testKeysOnly,
		TestKeys: testKeys(t), Domain: domain, Bundle: bundle, Digest: digest.String(),
		Accepted: forgery{grant: w.sign(t, c), want: want(t)}.vector(),
	}
	file.Header, file.Claims = split(t, w.sign(t, c))
	for _, f := range forgeries(t, w) {
		file.Refused = append(file.Refused, f.vector())
	}
	writeVectors(t, "grant.json", file)
}

func TestProofVectorsAreTheForgeries(t *testing.T) {
	w := newWorld(t)
	bundle, err := w.bundle.Marshal()
	must(t, err)
	file := proofVectors{
		About:    "leaseStatus.v1: status proofs of the lease of one grant, each with its class, accept or the step that refuses it; see spec/GRANT.md. now_ms and skew_ms are the resource's clock and the stated bound." + testKeysOnly,
		TestKeys: testKeys(t), Domain: domain, Bundle: bundle, Grant: w.sign(t, claims(t)),
	}
	for _, f := range proofForgeries(t, w) {
		v := proofVector{
			Name: f.name, Rule: f.rule, Class: classOf(f.reason), Reason: string(f.reason), Proof: f.proof,
			NoGrant: !f.want.Grant.Valid(), Pending: f.want.Pending, Now: f.want.Now.UnixMilli(), Skew: f.want.Skew.Milliseconds(),
			Epoch: f.want.Seen.Epoch, Revision: f.want.Seen.Revision, Sequence: f.want.Bundle.Sequence,
		}
		file.Proofs = append(file.Proofs, v)
	}
	writeVectors(t, "proof.json", file)
}

func TestBundleVectorsAreTheForgeries(t *testing.T) {
	w := newWorld(t)
	raw, err := w.bundle.Marshal()
	must(t, err)
	file := bundleVectors{
		About:    "Trust bundles, each with its class: accept, or why the whole bundle is refused; see spec/GRANT.md. Class rollback is a bundle that is good by itself, at a resource that has seen a higher sequence or minimum epoch." + testKeysOnly,
		TestKeys: testKeys(t),
	}
	for _, f := range bundleForgeries(t, w) {
		class := f.class
		if class == "" {
			class = "accept"
		}
		file.Bundles = append(file.Bundles, bundleVector{Name: f.name, Class: class, Says: f.says, Bundle: f.in})
	}
	for _, v := range []bundleVector{
		{Name: "the highest one seen", Class: "accept", Sequence: 11, Minimum: 3},
		{Name: "a sequence below the highest seen", Class: "rollback", Sequence: 12},
		{Name: "a minimum epoch below the highest seen", Class: "rollback", Sequence: 10, Minimum: 4},
	} {
		v.Bundle = string(raw)
		file.Bundles = append(file.Bundles, v)
	}
	writeVectors(t, "bundle.json", file)
}

func readVectors[T any](t *testing.T, name string) T {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "spec", "vectors", name))
	must(t, err)
	var v T
	must(t, json.Unmarshal(b, &v))
	return v
}

// vectorVerifier believes the bundle of a vector file.
func vectorVerifier(t *testing.T, raw json.RawMessage) *grant.Verifier {
	t.Helper()
	bundle, err := grant.ParseBundle(raw)
	must(t, err)
	v, err := grant.NewVerifier(domain, grant.StaticBundle(bundle), grant.VerifierConfig{})
	must(t, err)
	return v
}

// The verifier agrees with the files as they stand there: what another language reads.
func TestTheVerifierAgreesWithTheVectorFiles(t *testing.T) {
	grants := readVectors[grantVectors](t, "grant.json")
	v := vectorVerifier(t, grants.Bundle)
	for _, c := range append(grants.Refused, grants.Accepted) {
		need := grant.Want{
			Resource: lastword.Resource(c.Resource), Owner: c.Owner, Class: lastword.Class(c.WantClass),
			PolicyGeneration: c.PolicyGeneration, MinPolicyGeneration: c.MinPolicyGeneration,
		}
		if c.Root != nil {
			need.Root = &lastword.Digest{}
			if *c.Root != "" {
				d, err := lastword.ParseDigest(*c.Root)
				must(t, err)
				need.Root = &d
			}
		}
		got, err := v.Open(t.Context(), c.Grant, need)
		if r := grant.ReasonOf(err); string(r) != c.Reason || classOf(r) != c.Class || (err == nil) != got.Valid() {
			t.Errorf("grant %s: %v, want %s (%s)", c.Name, err, c.Reason, c.Class)
		}
	}
	proofs := readVectors[proofVectors](t, "proof.json")
	if len(grants.Refused) < 100 || len(proofs.Proofs) < 50 {
		t.Fatalf("%d grants and %d proofs: the files are too small", len(grants.Refused), len(proofs.Proofs))
	}
	for _, c := range proofs.Proofs {
		if r := openVector(t, vectorVerifier(t, proofs.Bundle), proofs.Grant, c); string(r) != c.Reason || classOf(r) != c.Class {
			t.Errorf("proof %s: got %q, want %q (%s)", c.Name, r, c.Reason, c.Class)
		}
	}
	for _, c := range readVectors[bundleVectors](t, "bundle.json").Bundles {
		bundle, err := grant.ParseBundle([]byte(c.Bundle))
		if err == nil && c.Class == "rollback" {
			v, err2 := grant.NewVerifier(domain, grant.StaticBundle(bundle), grant.VerifierConfig{Floor: grant.BundleFloor{Sequence: c.Sequence, MinimumEpoch: c.Minimum}})
			must(t, err2)
			_, err = v.Open(t.Context(), grants.Accepted.Grant, want(t))
			if grant.ReasonOf(err) != grant.ReasonBundleRollback {
				t.Errorf("bundle %s: %v", c.Name, err)
			}
		}
		if (err == nil) != (c.Class == "accept") {
			t.Errorf("bundle %s: %v, want %s", c.Name, err, c.Class)
		}
	}
}

func openVector(t *testing.T, v *grant.Verifier, sealed string, c proofVector) grant.Reason {
	t.Helper()
	need := grant.StatusWant{
		Pending: c.Pending, Now: timeOf(c.Now), Skew: timeOf(c.Skew).Sub(timeOf(0)),
		Seen: grant.StatusMark{Epoch: c.Epoch, Revision: c.Revision}, Bundle: grant.BundleFloor{Sequence: c.Sequence},
	}
	if !c.NoGrant {
		g, err := v.Open(t.Context(), sealed, want(t))
		must(t, err)
		need.Grant = g
	}
	_, err := v.OpenStatus(t.Context(), c.Proof, need)
	return grant.ReasonOf(err)
}
