package history_test

import (
	"strings"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/lab/history"
)

func TestTheVerifierFindsWhatMustNotBe(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	grant := func(owner string, fence lastword.Token, sent, heard time.Duration) history.Fact {
		return history.Fact{
			Op: "acquire", Resource: "doc", Owner: owner, RequestID: "1", LeaseID: "lease-" + owner, Fence: fence,
			TTL: 100 * ms, Remaining: 100 * ms, Sent: sent, Heard: heard,
		}
	}
	as := func(f history.Fact, change func(*history.Fact)) history.Fact { change(&f); return f }
	a := grant("a", 1, 0, 1*ms)
	for _, c := range []struct {
		name    string
		history []history.Fact
		want    string // "" is nothing
	}{
		{"one after the other", []history.Fact{a, grant("b", 2, 99*ms, 101*ms)}, ""},
		{"released before", []history.Fact{a, {Op: "release", Resource: "doc", Owner: "a", RequestID: "1", Sent: 2 * ms, Heard: 3 * ms}, grant("b", 2, 3*ms, 4*ms)}, ""},
		{"an open release before", []history.Fact{a, {Op: "release", Resource: "doc", Owner: "a", RequestID: "1", Code: "UNKNOWN", Sent: 2 * ms, Heard: 3 * ms}, grant("b", 2, 3*ms, 4*ms)}, ""},
		{"a release after", []history.Fact{a, grant("b", 2, 3*ms, 4*ms), {Op: "release", Resource: "doc", Owner: "a", RequestID: "1", Sent: 5 * ms, Heard: 6 * ms}}, "granted inside"},
		{"inside", []history.Fact{a, grant("b", 2, 3*ms, 99*ms)}, "granted inside"},
		{"inside a renewal", []history.Fact{a, as(a, func(f *history.Fact) { f.Op, f.Sent, f.Heard = "renew", 50*ms, 51*ms }), grant("b", 2, 100*ms, 149*ms)}, "granted inside"},
		{"a fence twice", []history.Fact{a, grant("b", 1, 200*ms, 201*ms)}, "one name"},
		{"a request id twice", []history.Fact{a, as(a, func(f *history.Fact) { f.Fence, f.LeaseID, f.Sent, f.Heard = 2, "other", 200*ms, 201*ms })}, "one name"},
		{"a lease with two fences", []history.Fact{a, as(a, func(f *history.Fact) { f.Fence, f.RequestID, f.Sent, f.Heard = 2, "2", 200*ms, 201*ms })}, "one name"},
		{"a fence that goes down", []history.Fact{grant("a", 2, 0, 1*ms), grant("b", 1, 200*ms, 201*ms)}, "went down"},
		{"revoked before", []history.Fact{a, {Op: "revoke", Resource: "doc", Owner: "a", RequestID: "1", Sent: 2 * ms, Heard: 3 * ms}, grant("b", 2, 3*ms, 4*ms)}, ""},
		{"a renewal after the next grant", []history.Fact{a, grant("b", 2, 100*ms, 101*ms), as(a, func(f *history.Fact) { f.Op, f.Sent, f.Heard = "renew", 150*ms, 151*ms })}, "went down"},
	} {
		wrong := strings.Join(history.Verify(c.history), "\n")
		if c.want == "" && wrong != "" || !strings.Contains(wrong, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, wrong, c.want)
		}
	}
}
