package lastword_test

import (
	"path"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/lastword/lastword"
)

// KF-28: names that look alike and are not the same bytes.
var lookAlikes = []string{
	"Report", "report", "REPORT", "report ", " report",
	"rep\u00f3rt", "repo\u0301rt", // composed and decomposed
	"straße", "strasse", "STRASSE",
	"🔒", "🔒\ufe0f",
	"doc/a", "doc%2fa", "doc%2Fa", `doc\a`,
}

func TestNamesAreComparedByteByByte(t *testing.T) { // KF-28, T11
	t.Parallel()
	seen := map[lastword.Resource]string{}
	for _, name := range lookAlikes {
		got, err := lastword.ParseResource(name)
		if err != nil {
			t.Errorf("ParseResource(%q): %v", name, err)
			continue
		}
		if string(got) != name {
			t.Errorf("ParseResource(%q) = %q: a name is never folded, trimmed or repaired", name, got)
		}
		if other, ok := seen[got]; ok {
			t.Errorf("%q and %q became one resource", name, other)
		}
		seen[got] = name
		if err := lastword.CheckID("owner", name); err != nil {
			t.Errorf("CheckID(%q): %v", name, err)
		}
	}
}

func TestParseResourceRefusesWhatIsNotCanonical(t *testing.T) { // T11
	t.Parallel()
	for _, c := range []struct{ name, in, want string }{
		{"empty", "", "it is empty"},
		{"only a slash", "/", "empty segment"},
		{"leading slash", "/doc", "empty segment"},
		{"trailing slash", "doc/", "empty segment"},
		{"double slash", "doc//a", "empty segment"},
		{"dot", ".", `segment "."`},
		{"dot segment", "doc/./a", `segment "."`},
		{"dot dot", "doc/../a", `segment ".."`},
		{"dot dot at the end", "doc/..", `segment ".."`},
		{"NUL", "doc/\x00a", "control character"},
		{"newline", "doc/a\n", "control character"},
		{"tab", "doc\ta", "control character"},
		{"DEL", "doc/\x7f", "control character"},
		{"C1 control", "doc/\u0085", "control character"},
		{"broken UTF-8", "doc/\xff", "not valid UTF-8"},
		{"surrogate half", "doc/\xed\xa0\x80", "not valid UTF-8"},
		{"overlong slash", "doc\xc0\xafa", "not valid UTF-8"},
		{"513 bytes", strings.Repeat("a", lastword.MaxIDBytes+1), "513 bytes, more than 512"},
		{"64 KiB", strings.Repeat("a", 64<<10), "65536 bytes"},
		{"513 bytes in fewer characters", strings.Repeat("é", 256) + "a", "513 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := lastword.ParseResource(c.in)
			wantInvalid(t, err)
			if got != "" {
				t.Errorf("got %q beside the error", got)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %q, want it to say %q", err, c.want)
			}
		})
	}
}

func TestParseResourceAdmits(t *testing.T) {
	t.Parallel()
	for _, in := range []string{
		"a", "invoice-batch/2026-07-19", "...", ".hidden/..b", "a/b/c/d", " ", "a b",
		strings.Repeat("a", lastword.MaxIDBytes),
		strings.Repeat("é", lastword.MaxIDBytes/2),
	} {
		if got, err := lastword.ParseResource(in); err != nil || string(got) != in {
			t.Errorf("ParseResource(%q) = %q, %v", in, got, err)
		}
	}
}

func TestCheckIDNamesTheValue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ what, in, want string }{
		{"owner", "", `owner "": it is empty`},
		{"request id", "a\x00", `request id "a\x00": it has a control character`},
		{"operation id", "\xff", `operation id "\xff": it is not valid UTF-8`},
	} {
		err := lastword.CheckID(c.what, c.in)
		wantInvalid(t, err)
		if want := "INVALID: " + c.want; err.Error() != want {
			t.Errorf("got %q, want %q", err, want)
		}
	}
	// An id is no path: dots and slashes mean nothing in it.
	for _, in := range []string{"..", "/", "a//b", "spiffe://example.org/worker"} {
		if err := lastword.CheckID("owner", in); err != nil {
			t.Errorf("CheckID(%q): %v", in, err)
		}
	}
}

// FuzzParseResource: an accepted id is its own canonical form, and exactly the
// ids of protocol §1 are accepted. The second opinion is path.Clean.
func FuzzParseResource(f *testing.F) { // T11
	for _, name := range lookAlikes {
		f.Add(name)
	}
	for _, name := range []string{"", "/", "a/", "/a", "a//b", ".", "..", "a/../b", "a\x00", "\xff", "...", strings.Repeat("a", 513)} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, s string) {
		canonical := s != "" && len(s) <= lastword.MaxIDBytes && utf8.ValidString(s) &&
			strings.IndexFunc(s, unicode.IsControl) < 0 && path.Clean("/"+s) == "/"+s
		got, err := lastword.ParseResource(s)
		if (err == nil) != canonical {
			t.Fatalf("ParseResource(%q): error %v, but canonical is %t", s, err, canonical)
		}
		if err != nil {
			wantInvalid(t, err)
			return
		}
		if string(got) != s {
			t.Fatalf("ParseResource(%q) = %q", s, got)
		}
	})
}
