package lastword_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/lastword/lastword"
)

const emptyDigest = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

func TestDigestOfIsSHA256(t *testing.T) {
	t.Parallel()
	if got := lastword.DigestOf(nil).String(); got != emptyDigest {
		t.Errorf("got %s, want %s", got, emptyDigest)
	}
	if lastword.DigestOf([]byte("a")) == lastword.DigestOf([]byte("a ")) {
		t.Error("a digest is of exactly the bytes that are given")
	}
}

func TestParseDigestHasOneSpelling(t *testing.T) {
	t.Parallel()
	got, err := lastword.ParseDigest(emptyDigest)
	if err != nil || got != lastword.DigestOf(nil) {
		t.Fatalf("ParseDigest(%q) = %s, %v", emptyDigest, got, err)
	}
	hex := strings.TrimPrefix(emptyDigest, "sha256:")
	for name, in := range map[string]string{
		"empty":               "",
		"only the prefix":     "sha256:",
		"no prefix":           hex,
		"upper-case digits":   "sha256:" + strings.ToUpper(hex),
		"upper-case prefix":   "SHA256:" + hex,
		"one digit less":      emptyDigest[:len(emptyDigest)-1],
		"one digit more":      emptyDigest + "0",
		"a letter too far":    emptyDigest[:len(emptyDigest)-1] + "g",
		"white space":         " " + emptyDigest,
		"newline":             emptyDigest + "\n",
		"other algorithm":     "sha512:" + hex,
		"base64":              "sha256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=",
		"all zero is no hash": "sha256:" + strings.Repeat("0", 64),
		"full-width digits":   "sha256:" + strings.Repeat("\uff11", 64),
		"a great many digits": "sha256:" + strings.Repeat("0", 1<<16),
	} {
		got, err := lastword.ParseDigest(in)
		if err == nil {
			t.Errorf("%s: ParseDigest(%q) was accepted", name, in)
			continue
		}
		wantInvalid(t, err)
		if !got.IsZero() {
			t.Errorf("%s: got %s beside the error", name, got)
		}
	}
}

func TestTheZeroDigestIsNone(t *testing.T) {
	t.Parallel()
	var none lastword.Digest
	if !none.IsZero() || none.String() != "" {
		t.Errorf("got %q, want no spelling for none", none)
	}
	if lastword.DigestOf(nil).IsZero() {
		t.Error("the digest of no bytes is a digest, not none")
	}
}

var digestSpelling = regexp.MustCompile(`\Asha256:[0-9a-f]{64}\z`)

func FuzzParseDigest(f *testing.F) {
	f.Add(emptyDigest)
	f.Add(strings.ToUpper(emptyDigest))
	f.Add("sha256:" + strings.Repeat("0", 64))
	f.Add("sha256:")
	f.Add("")
	f.Fuzz(func(t *testing.T, s string) {
		want := digestSpelling.MatchString(s) && strings.Trim(s[len("sha256:"):], "0") != ""
		got, err := lastword.ParseDigest(s)
		if (err == nil) != want {
			t.Fatalf("ParseDigest(%q) = %s, %v; want accepted: %t", s, got, err, want)
		}
		if err != nil {
			wantInvalid(t, err)
			return
		}
		if got.String() != s {
			t.Fatalf("ParseDigest(%q) = %q", s, got)
		}
	})
}
