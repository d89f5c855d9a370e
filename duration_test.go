package lastword_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/lastword/lastword"
)

func TestParseDurationRefusesWhatItCannotHold(t *testing.T) { // KF-20
	t.Parallel()
	for _, in := range []string{
		"", " ", "30", "s", "-1s", "+1s", "-0s", "- 1s", "1 s", " 1s", "1s ", "1s\n", "1s-1s",
		"NaN", "NaNs", "Inf", "inf", "Infs", "null", "1e30s", "1e3s", "0x10s", "1_000s", "1,5s",
		"1d", "1w", "1y", "P1D", "PT30S",
		"9223372036854775808ns", // 2^63
		"9223372036854775807us",
		"9223372036854775807h",
		"18446744073709551616ns",                     // 2^64: must not come round to 0
		"18446744073709551617ns",                     // nor to 1
		"4611686018427387904ns4611686018427387904ns", // 2^62 twice
		"2562047h47m16.854775808s",                   // MaxInt64 + 1 ns
		"9007199254740992s",                          // 2^53
		"9007199254740992000ms1s1h",                  // 2^53 s as far as it fits, and more
		strings.Repeat("9", 40) + "s",
		strings.Repeat("9", 40),
		strings.Repeat("9", 1<<16) + "s",
		// Smaller than the clock can count: must not become 0, which means "none"
		// or "the default".
		"0.1ns", "0.0000000001s", "0." + strings.Repeat("0", 40) + "1s",
	} {
		got, err := lastword.ParseDuration(in)
		if err == nil {
			t.Errorf("ParseDuration(%q) = %s, want it refused", in, got)
			continue
		}
		wantInvalid(t, err)
		if got != 0 {
			t.Errorf("ParseDuration(%q) gave %s beside the error", in, got)
		}
	}
}

// What fits is exact, however it is spelt, and never negative. Bounds such as
// the longest TTL are the caller's.
func TestParseDurationIsExact(t *testing.T) { // KF-20
	t.Parallel()
	for in, want := range map[string]time.Duration{
		"0":                        0,
		"0s":                       0,
		"1ns":                      1,
		"1us":                      time.Microsecond,
		"1µs":                      time.Microsecond,
		"500ms":                    500 * time.Millisecond,
		"30s":                      30 * time.Second,
		"1m30s":                    90 * time.Second,
		"1.5h":                     90 * time.Minute,
		"100000h":                  100_000 * time.Hour,
		"4611686018427387904ns":    1 << 62,
		"4611686018427387.904us":   1 << 62,
		"4611686018.427387904s":    1 << 62,
		"1281023h53m38.427387904s": 1 << 62,
		"9223372036854775807ns":    math.MaxInt64,
		"2562047h47m16.854775807s": math.MaxInt64,
		"1125899906842624us":       1 << 50 * time.Microsecond,
		"1125899906842ms":          1125899906842 * time.Millisecond,
	} {
		got, err := lastword.ParseDuration(in)
		if err != nil || got != want {
			t.Errorf("ParseDuration(%q) = %d ns, %v; want %d ns", in, got, err, want)
		}
	}
}

func FuzzParseDuration(f *testing.F) {
	for _, s := range []string{"", "0", "30s", "1m30s", "-1s", "+1s", "NaN", "1e30s", "4611686018427387904ns", "0.1ns", ".5s", "9223372036854775808ns"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := lastword.ParseDuration(s)
		if err != nil {
			wantInvalid(t, err)
			if got != 0 {
				t.Fatalf("ParseDuration(%q) gave %s beside the error", s, got)
			}
			return
		}
		if got < 0 {
			t.Fatalf("ParseDuration(%q) = %s", s, got)
		}
		if zero := !strings.ContainsAny(s, "123456789"); zero != (got == 0) {
			t.Fatalf("ParseDuration(%q) = %s", s, got)
		}
		again, err := lastword.ParseDuration(got.String())
		if err != nil || again != got {
			t.Fatalf("ParseDuration(%q) = %s, which reads back as %s, %v", s, got, again, err)
		}
	})
}
