package lastword_test

import (
	"math"
	"math/big"
	"regexp"
	"strings"
	"testing"

	"github.com/lastword/lastword"
)

func TestParseTokenHasOneSpelling(t *testing.T) { // KF-18
	t.Parallel()
	for _, in := range []string{
		"", "0", "00", "007", "01", "+1", "-1", "-0", " 1", "1 ", "1\n", "1e3", "1E3", "1.0", "1.", ".1",
		"0x10", "0b1", "1_000", "1,000", "NaN", "Infinity", "null", "true", `"1"`, "\u0661", "\uff11", // digits of other scripts
		"9007199254740992",     // 2^53
		"9223372036854775807",  // 2^63 − 1
		"9223372036854775808",  // 2^63
		"18446744073709551615", // 2^64 − 1
		"18446744073709551616", // 2^64: must not come round to 0
		"18446744073709551617", // nor to 1
		strings.Repeat("9", 4096),
	} {
		got, err := lastword.ParseToken(in)
		if err == nil {
			t.Errorf("ParseToken(%q) = %d, want it refused", in, got)
			continue
		}
		wantInvalid(t, err)
		if got != 0 {
			t.Errorf("ParseToken(%q) gave %d beside the error", in, got)
		}
	}
}

func TestTheLargestTokensAreExactAndDistinct(t *testing.T) { // KF-18
	t.Parallel()
	for i, in := range []string{"9007199254740989", "9007199254740990", "9007199254740991"} {
		got, err := lastword.ParseToken(in)
		if err != nil {
			t.Fatal(err)
		}
		if want := lastword.MaxToken - 2 + lastword.Token(i); got != want {
			t.Errorf("ParseToken(%q) = %d, want %d", in, got, want)
		}
		if got.String() != in {
			t.Errorf("got %q, want %q", got, in)
		}
		if f := float64(got); lastword.Token(f) != got {
			t.Errorf("%s is not exact as a float64", in)
		}
	}
}

func TestTokenParts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		epoch   uint32
		counter uint64
		want    lastword.Token
		text    string
	}{
		{0, 1, 1, "1 (0.1)"},
		{0, 42, 42, "42 (0.42)"},
		{0, lastword.MaxCounter, 1<<33 - 1, "8589934591 (0.8589934591)"},
		{1, 1, 1<<33 + 1, "8589934593 (1.1)"},
		{lastword.MaxEpoch, lastword.MaxCounter, lastword.MaxToken, "9007199254740991 (1048575.8589934591)"},
	} {
		got, err := lastword.MakeToken(c.epoch, c.counter)
		if err != nil {
			t.Fatal(err)
		}
		if got != c.want || !got.Valid() || got.Epoch() != c.epoch || got.Counter() != c.counter || got.Text() != c.text {
			t.Errorf("MakeToken(%d, %d) = %s, want %s", c.epoch, c.counter, got.Text(), c.text)
		}
	}
}

func TestANewEpochOutranksEveryCounterBefore(t *testing.T) { // protocol §1
	t.Parallel()
	last, err := lastword.MakeToken(6, lastword.MaxCounter)
	if err != nil {
		t.Fatal(err)
	}
	first, err := lastword.MakeToken(7, 1)
	if err != nil {
		t.Fatal(err)
	}
	if first <= last {
		t.Errorf("%s does not outrank %s", first.Text(), last.Text())
	}
}

func TestMakeTokenNeverWraps(t *testing.T) { // R11
	t.Parallel()
	for _, c := range []struct {
		epoch   uint32
		counter uint64
	}{
		{0, 0}, {1, 0}, {0, lastword.MaxCounter + 1}, {0, math.MaxUint64},
		{lastword.MaxEpoch + 1, 1}, {math.MaxUint32, 1},
	} {
		got, err := lastword.MakeToken(c.epoch, c.counter)
		if got != 0 || err == nil {
			t.Errorf("MakeToken(%d, %d) = %d, %v", c.epoch, c.counter, got, err)
			continue
		}
		wantInvalid(t, err)
	}
}

func TestZeroAndTooLargeAreNoFence(t *testing.T) {
	t.Parallel()
	for _, n := range []lastword.Token{0, lastword.MaxToken + 1, math.MaxInt64, math.MaxUint64} {
		if n.Valid() {
			t.Errorf("%d counts as a fence", n)
		}
	}
}

var tokenSpelling = regexp.MustCompile(`\A[1-9][0-9]*\z`)

// FuzzParseToken compares with arbitrary precision.
func FuzzParseToken(f *testing.F) {
	for _, s := range []string{"1", "42", "9007199254740991", "9007199254740992", "18446744073709551617", "007", "1e3", "-1", "", "1.0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		want := tokenSpelling.MatchString(s)
		if want {
			n, _ := new(big.Int).SetString(s, 10)
			want = n.Cmp(big.NewInt(1<<53-1)) <= 0
		}
		got, err := lastword.ParseToken(s)
		if (err == nil) != want {
			t.Fatalf("ParseToken(%q) = %d, %v; want accepted: %t", s, got, err, want)
		}
		if err != nil {
			wantInvalid(t, err)
			return
		}
		if !got.Valid() || got.String() != s {
			t.Fatalf("ParseToken(%q) = %q", s, got)
		}
	})
}
