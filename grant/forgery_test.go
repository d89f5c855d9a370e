package grant_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"strings"
	"testing"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
)

// forgery is one way not to be a good grant.
type forgery struct {
	name   string
	rule   string
	grant  string
	want   grant.Want
	reason grant.Reason
}

// forgeries is the table of forgery classes. Whatever says nothing else is signed
// by the right key, so that only the named defect can refuse it.
func forgeries(t testing.TB, w *world) []forgery {
	all := shapeForgeries(t, w)
	all = append(all, sealForgeries(t, w)...)
	all = append(all, memberForgeries(t, w)...)
	all = append(all, epochForgeries(t, w)...)
	return append(all, bindingForgeries(t, w)...)
}

func shapeForgeries(t testing.TB, w *world) []forgery {
	good, ok := w.sign(t, claims(t)), want(t)
	last := len(good) - 1
	// The last of 86 characters has four bits that must be zero.
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	otherBits := string(alphabet[strings.IndexByte(alphabet, good[last])|1])
	return []forgery{
		{"empty", "T22", "", ok, grant.ReasonSegments},
		{"oversized", "T22", good + strings.Repeat("A", grant.MaxBytes), ok, grant.ReasonTooLarge},
		{"one byte too large, all dots", "T22", strings.Repeat(".", grant.MaxBytes+1), ok, grant.ReasonTooLarge},
		{"all dots", "T22", strings.Repeat(".", grant.MaxBytes), ok, grant.ReasonSegments},
		{"a segment less", "T5", good[:strings.LastIndexByte(good, '.')], ok, grant.ReasonSegments},
		{"a segment more", "T5", good + ".", ok, grant.ReasonSegments},
		{"truncated by a character", "T5", good[:last], ok, grant.ReasonEncoding},
		{"truncated by a byte of the seal", "T5", good[:last-1], ok, grant.ReasonSignature},
		{"extended by a line break", "T5", good + "\n", ok, grant.ReasonEncoding},
		{"extended by three bytes of the seal", "T5", good + "AAAA", ok, grant.ReasonSignature},
		{"padded", "T6", good + "==", ok, grant.ReasonEncoding},
		{"bits left over", "T6", good[:last] + otherBits, ok, grant.ReasonEncoding},
		{"a line break inside", "T6", good[:9] + "\n" + good[9:], ok, grant.ReasonEncoding},
		{"standard alphabet", "T6", "+" + good[1:], ok, grant.ReasonEncoding},
	}
}

func sealForgeries(t testing.TB, w *world) []forgery {
	good, ok := w.sign(t, claims(t)), want(t)
	header, payload := split(t, good)
	other := claims(t)
	other.Fence++
	goodParts, otherParts := strings.Split(good, "."), strings.Split(w.sign(t, other), ".")
	public := []byte(private(0)[32:])
	jwk := swap(t, header, `,"kid"`, `,"jwk":{"kty":"OKP","crv":"Ed25519","x":"`+b64([]byte(private(2)[32:]))+`"},"kid"`)

	mac := func(secret []byte) string {
		input := b64([]byte(swap(t, header, "EdDSA", "HS256"))) + "." + b64([]byte(payload))
		h := hmac.New(sha256.New, secret)
		h.Write([]byte(input))
		return input + "." + b64(h.Sum(nil))
	}
	_, statusPayload := split(t, w.proof(t, statusOf(t, w)))
	rawBundle, err := w.bundle.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	unsigned := b64([]byte(swap(t, header, "EdDSA", "none"))) + "." + b64([]byte(payload)) + "."
	all := []forgery{
		{"wrong key under the right kid", "T3", seal(private(2), header, payload), ok, grant.ReasonSignature},
		{"embedded jwk", "T3", seal(private(2), jwk, payload), ok, grant.ReasonUnknownMember},
		{"embedded x5c", "T3", seal(private(2), swap(t, header, `}`, `,"x5c":["AAAA"]}`), payload), ok, grant.ReasonUnknownMember},
		{"embedded x5u", "T3", seal(private(2), swap(t, header, `}`, `,"x5u":"https://example.org"}`), payload), ok, grant.ReasonUnknownMember},
		{"crit", "T3", seal(private(0), swap(t, header, `,"kid"`, `,"crit":"b64","kid"`), payload), ok, grant.ReasonUnknownMember},
		{"embedded jku", "T3", seal(private(2), swap(t, header, `,"kid"`, `,"jku":"https://example.org","kid"`), payload), ok, grant.ReasonUnknownMember},
		{"revoked key", "R13", seal(private(2), swap(t, header, w.present.ID(), key(t, 2).ID()), payload), ok, grant.ReasonUnknownKey},
		{"no signature", "T8", strings.Join(goodParts[:2], ".") + ".", ok, grant.ReasonSignature},
		{"alg none", "T8", unsigned, ok, grant.ReasonAlgorithm},
		{"HS256 with the public key", "T8", mac(public), ok, grant.ReasonAlgorithm},
		{"HS256 with the public key as text", "T8", mac([]byte(b64(public))), ok, grant.ReasonAlgorithm},
		{"HS256 with the key's id", "T8", mac([]byte(w.present.ID())), ok, grant.ReasonAlgorithm},
		{"HS256 that calls itself EdDSA", "T8", strings.Join(goodParts[:2], ".") + "." + mac(public)[strings.LastIndexByte(mac(public), '.')+1:], ok, grant.ReasonSignature},
		{"HS256 with a key for one trust zone that nobody was given", "T8", zoneGrant(t), ok, grant.ReasonUnknownKey},
		{"a status proof", "T9", w.proof(t, statusOf(t, w)), ok, grant.ReasonType},
		{"a status proof that calls itself a grant", "T9", seal(private(0), header, statusPayload), ok, grant.ReasonUnknownMember},
		{"a trust bundle", "T9", string(rawBundle), ok, grant.ReasonSegments},
		{"a trust bundle in a seal", "T9", seal(private(0), header, string(rawBundle)), ok, grant.ReasonUnknownMember},
		{"owner and lease swapped", "T5", goodParts[0] + "." + b64([]byte(strings.NewReplacer(owner, "lease-7f3a", "lease-7f3a", owner).Replace(payload))) + "." + goodParts[2], ok, grant.ReasonSignature},
		{"claims of another grant", "T5", goodParts[0] + "." + otherParts[1] + "." + goodParts[2], ok, grant.ReasonSignature},
		{"header of the retired key", "T5", b64([]byte(swap(t, header, w.present.ID(), w.retired.ID()))) + "." + goodParts[1] + "." + goodParts[2], ok, grant.ReasonSignature},
	}
	for _, alg := range []string{"None", "NONE", "", "eddsa", "Ed25519", "Ed448", "ES256", "ES384", "ES512", "RS256", "PS256", "HS256", "HS384", "HS512", "ML-DSA-44"} {
		all = append(all, forgery{"alg " + alg, "T8", seal(private(0), swap(t, header, "EdDSA", alg), payload), ok, grant.ReasonAlgorithm})
	}
	for _, typ := range []string{"", "JWT", "lockgrant.v1", "lockgrant.v2+jwt", "LockGrant.v1+jwt", grant.StatusType, "leasestatus.v1", "at+jwt"} {
		all = append(all, forgery{"typ " + typ, "T9", seal(private(0), swap(t, header, grant.Type, typ), payload), ok, grant.ReasonType})
	}
	return all
}

// memberForgeries change the signed JSON (T6, T7).
func memberForgeries(t testing.TB, w *world) []forgery {
	ok := want(t)
	header, payload := split(t, w.sign(t, claims(t)))
	fenceMember := `"fence":` + claims(t).Fence.String()
	in := func(name, rule, old, replacement string, reason grant.Reason) forgery {
		return forgery{name, rule, seal(private(0), header, swap(t, payload, old, replacement)), ok, reason}
	}
	all := []forgery{
		in("duplicate member", "T7", `"sub":"`, `"sub":"evil","sub":"`, grant.ReasonDuplicateMember),
		in("duplicate fence", "T7", fenceMember, fenceMember+`,"fence":9`, grant.ReasonDuplicateMember),
		in("unknown member", "T6", `"sub":"`, `"admin":"yes","sub":"`, grant.ReasonUnknownMember),
		in("case variant", "T7", `"sub":"`, `"SUB":"evil","sub":"`, grant.ReasonUnknownMember),
		in("missing member", "R12", `,"revision":1234`, ``, grant.ReasonMissingMember),
		in("deep", "T22", fenceMember, `"fence":`+strings.Repeat("[", 500)+strings.Repeat("]", 500), grant.ReasonTooDeep),
		in("object for a string", "T22", `"lease-7f3a"`, `{"a":1}`, grant.ReasonTooDeep),
		in("null for a string", "T6", `"lease-7f3a"`, `null`, grant.ReasonValue),
		in("fence 0", "R12", fenceMember, `"fence":0`, grant.ReasonFenceRange),
		in("fence 2^53", "T19", fenceMember, `"fence":9007199254740992`, grant.ReasonFenceRange),
		in("revision 2^53", "R12", `"revision":1234`, `"revision":9007199254740992`, grant.ReasonNumber),
		in("version 2", "R12", `"version":1`, `"version":2`, grant.ReasonVersion),
		in("resource not canonical", "T11", string(resource), `a/../b`, grant.ReasonValue),
		in("empty owner", "R12", owner, ``, grant.ReasonValue),
		in("empty class", "R12", `"class":"write"`, `"class":""`, grant.ReasonValue),
		in("ttl 0", "R12", `"ttl_ns":30000000000`, `"ttl_ns":0`, grant.ReasonValue),
		in("root in capitals", "T6", `"root":"sha256:`, `"root":"SHA256:`, grant.ReasonValue),
		in("members in another order", "T6", `{"class":"write",`+`"epoch":4`, `{"epoch":4,"class":"write"`, grant.ReasonNotCanonical),
		in("white space", "T6", `,"sub"`, `, "sub"`, grant.ReasonMalformed),
		in("escaped letter", "T6", `lease-7f3a`, `\u006cease-7f3a`, grant.ReasonNotCanonical),
		in("escaped slash", "T6", `invoice-batch/2026`, `invoice-batch\/2026`, grant.ReasonNotCanonical),
		in("raw control character", "T6", `lease-7f3a`, "lease\x01", grant.ReasonMalformed),
		in("no UTF-8", "T6", `lease-7f3a`, "lease\xff", grant.ReasonMalformed),
		in("trailing bytes", "T6", `"version":1}`, `"version":1}{}`, grant.ReasonMalformed),
		in("trailing comma", "T6", `"version":1}`, `"version":1,}`, grant.ReasonMalformed),
		in("cut off", "T5", `"version":1}`, `"version":1`, grant.ReasonMalformed),
		{"claims are an array", "T6", seal(private(0), header, `[]`), ok, grant.ReasonMalformed},
		{"claims are empty", "T6", seal(private(0), header, ``), ok, grant.ReasonMalformed},
		{"header case variant", "T7", seal(private(0), swap(t, header, `"alg"`, `"Alg"`), payload), ok, grant.ReasonUnknownMember},
		{"header alg twice", "T7", seal(private(0), swap(t, header, `"alg":"EdDSA"`, `"alg":"EdDSA","alg":"none"`), payload), ok, grant.ReasonDuplicateMember},
		{"header without kid", "R12", seal(private(0), swap(t, header, `"kid":"`+w.present.ID()+`",`, ``), payload), ok, grant.ReasonMissingMember},
		{"header in another order", "T6", seal(private(0), `{"typ":"`+grant.Type+`","alg":"EdDSA","kid":"`+w.present.ID()+`"}`, payload), ok, grant.ReasonNotCanonical},
	}
	for _, number := range []string{`7.0`, `1e3`, `07`, `-7`, `+7`, `0x7`, `"7"`, `true`, `null`, ` 7`, `7 `, `18446744073709551623`, `00`} {
		all = append(all, in("fence "+number, "T6", fenceMember, `"fence":`+number, grant.ReasonNumber))
	}
	return all
}

func epochForgeries(t testing.TB, w *world) []forgery {
	ok := want(t)
	ok.Root = nil
	at := func(kid string, epoch uint32) string {
		c := claims(t)
		c.Fence = fence(t, epoch, 41)
		g, _, err := w.signer.Sign(kid, c)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	header, payload := split(t, w.sign(t, claims(t)))
	elsewhere := swap(t, payload, `"iss":"billing"`, `"iss":"staging"`)
	return []forgery{
		{"another domain", "T10", seal(private(0), header, elsewhere), ok, grant.ReasonDomain},
		{"epoch is not the fence's", "R12", seal(private(0), header, swap(t, payload, `"epoch":4`, `"epoch":5`)), ok, grant.ReasonEpoch},
		{"epoch before the key's first", "R13", at("", 3), ok, grant.ReasonEpochOfKey},
		{"epoch after the key's last", "R13", at(w.retired.ID(), 4), ok, grant.ReasonEpochOfKey},
		{"epoch below the minimum", "T27", at(w.retired.ID(), 2), ok, grant.ReasonEpochRevoked},
		{"epoch above the current one", "R12", at("", 6), ok, grant.ReasonEpochAhead},
	}
}

func bindingForgeries(t testing.TB, w *world) []forgery {
	good := w.sign(t, claims(t))
	but := func(change func(*grant.Want)) grant.Want {
		ok := want(t)
		change(&ok)
		return ok
	}
	advance := claims(t)
	advance.Class = lastword.ClassAdvance
	other := lastword.DigestOf([]byte("other work"))
	return []forgery{
		{"another resource", "T10", good, but(func(w *grant.Want) { w.Resource = "invoice-batch/2026-07-20" }), grant.ReasonResource},
		{"resource in other letters", "T11", good, but(func(w *grant.Want) { w.Resource = "Invoice-batch/2026-07-19" }), grant.ReasonResource},
		{"nothing wanted", "R14", good, grant.Want{}, grant.ReasonResource},
		{"another owner", "T1", good, but(func(w *grant.Want) { w.Owner += "b" }), grant.ReasonOwner},
		{"another root", "R12", good, but(func(w *grant.Want) { w.Root = &other }), grant.ReasonRoot},
		{"no root wanted", "R12", good, but(func(w *grant.Want) { w.Root = &lastword.Digest{} }), grant.ReasonRoot},
		{"another class", "T25", good, but(func(w *grant.Want) { w.Class = "delete" }), grant.ReasonClass},
		{"write with a grant of advance", "T25", w.sign(t, advance), want(t), grant.ReasonClass},
		{"newer policy generation of the mutation", "T26", good, but(func(w *grant.Want) { w.PolicyGeneration = 8 }), grant.ReasonPolicy},
		{"older policy generation of the mutation", "R12", good, but(func(w *grant.Want) { w.PolicyGeneration = 6 }), grant.ReasonPolicy},
		{"policy generation below the minimum", "T26", good, but(func(w *grant.Want) { w.MinPolicyGeneration = 8 }), grant.ReasonPolicyRevoked},
	}
}

// R12, T3, T5 to T11, T19, T22, T25 to T27: every class of forgery is refused for
// its own reason, before and after the good grant was opened.
func TestOpenRefusesEveryForgeryForItsReason(t *testing.T) {
	w := newWorld(t)
	cold, warm := w.verifier(t, grant.VerifierConfig{Memory: -1}), w.verifier(t, grant.VerifierConfig{})
	if _, err := warm.Open(t.Context(), w.sign(t, claims(t)), want(t)); err != nil {
		t.Fatalf("the good grant: %v", err)
	}
	for _, f := range forgeries(t, w) {
		t.Run(f.name, func(t *testing.T) {
			for _, v := range []*grant.Verifier{cold, warm} {
				got, err := v.Open(t.Context(), f.grant, f.want)
				if reasonOf(err) != string(f.reason) {
					t.Fatalf("%s: got %s, want %s", f.rule, reasonOf(err), f.reason)
				}
				if got.Valid() || got != (grant.Verified{}) {
					t.Fatalf("%s: refused, and yet a value came back", f.rule)
				}
				if !errors.Is(err, lastword.ErrUnverified) {
					t.Fatalf("code of %v is not UNVERIFIED", err)
				}
				if f.grant != "" && strings.Contains(err.Error(), f.grant) || strings.Contains(err.Error(), owner) {
					t.Fatalf("T17: the error quotes the grant: %v", err)
				}
			}
		})
	}
}
