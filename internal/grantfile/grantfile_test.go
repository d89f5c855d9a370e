package grantfile_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/internal/grantfile"
)

// tenure is one with a grant that a key has signed.
func tenure(t testing.TB) lastword.Tenure {
	t.Helper()
	key, err := grant.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	signer, err := grant.NewSigner("demo", key)
	if err != nil {
		t.Fatal(err)
	}
	ref := lastword.TenureRef{Resource: "doc/a", Owner: "w1", RequestID: "r1", LeaseID: "l1", Fence: 41}
	signed, digest, err := signer.Sign(signer.KeyID(), grant.Claims{
		Domain: "demo", Resource: ref.Resource, Owner: ref.Owner, RequestID: ref.RequestID, LeaseID: ref.LeaseID, Fence: ref.Fence,
		Class: lastword.ClassWrite, TTL: time.Minute, IssuedAt: time.Unix(1_800_000_000, 0),
	})
	if err != nil {
		t.Fatal(err)
	}
	return lastword.Tenure{TenureRef: ref, Grant: signed, GrantDigest: digest, TTL: time.Minute}
}

func content(t testing.TB) []byte {
	t.Helper()
	of := tenure(t)
	b, err := grantfile.New(of.TenureRef, of.Grant).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestTheParserOfGrantFilesIsStrict(t *testing.T) {
	t.Parallel()
	good := string(content(t))
	if _, err := grantfile.Parse([]byte(good)); err != nil {
		t.Fatal(err)
	}
	if _, err := grantfile.Parse([]byte(strings.Replace(good, `"fence": "41"`, `"fence": 41`, 1))); err != nil {
		t.Errorf("a fence as a number: %v", err)
	}
	swap := func(old, new string) string {
		t.Helper()
		changed := strings.Replace(good, old, new, 1)
		if changed == good {
			t.Fatalf("%q is not in the file", old)
		}
		return changed
	}
	for _, c := range []struct{ name, text, want string }{
		{"another fence", swap(`"41"`, `"42"`), "not about the tenure"},
		{"fence 0", swap(`"41"`, `"0"`), "fence"},
		{"a fence with an exponent", swap(`"fence": "41"`, `"fence": 4.1e1`), "fence"},
		{"a fence above 2^53", swap(`"41"`, `"9007199254740992"`), "fence"},
		{"another resource", swap(`"doc/a"`, `"doc/b"`), "not about the tenure"},
		{"another lease", swap(`"l1"`, `"l2"`), "not about the tenure"},
		{"a member in other letters", swap(`"owner"`, `"Owner"`), `"Owner" that is unknown`},
		{"a list", "[" + good + "]", "no JSON object"},
		{"two objects", good + good, "something behind"},
		{"null for a text", swap(`"w1"`, `null`), `"owner" is of the wrong kind`},
		{"an object for a text", swap(`"w1"`, `{"a": 1}`), `"owner" is of the wrong kind`},
		{"a version as text", swap(`"version": 1`, `"version": "1"`), `"version" is of the wrong kind`},
		{"white space", " \n\t", "it is empty"},
		{"a changed grant", swap(`"grant": "ey`, `"grant": "EY`), "the grant in it is broken"},
	} {
		f, err := grantfile.Parse([]byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
		if f.Ref() != (lastword.TenureRef{}) {
			t.Errorf("%s: got a tenure beside the error", c.name)
		}
		if err != nil && strings.Contains(err.Error(), "eyJ") {
			t.Errorf("%s: the error holds the grant: %v", c.name, err)
		}
	}
}

func FuzzParseGrantFile(f *testing.F) {
	good := content(f)
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Add([]byte(`{"version": 1, "fence": 1e400}`))
	f.Add([]byte(`{"version": 1, "owner": "\ud800"}`))
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := grantfile.Parse(b)
		if err != nil {
			if got.Ref() != (lastword.TenureRef{}) {
				t.Errorf("a tenure beside the error %v", err)
			}
			return
		}
		// What is accepted means one thing, and writing it gives that again.
		again, err := got.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		reread, err := grantfile.Parse(again)
		if err != nil || reread.Ref() != got.Ref() || reread.Grant() != got.Grant() || !bytes.Contains(again, []byte(got.Grant())) {
			t.Errorf("%q became %q: %v", b, again, err)
		}
	})
}
