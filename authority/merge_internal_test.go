package authority

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

func found(texts ...string) (all []result) {
	for _, text := range texts {
		name, revision, _ := strings.Cut(text, "@")
		rec := core.Record{Resource: lastword.Resource(name)}
		_, _ = fmt.Sscan(revision, &rec.Revision)
		all = append(all, result{record: rec})
	}
	return all
}

// R9: what comes with a page is older, newer, elsewhere, or yet to come.
func TestR9APageAndTheChangesThatCameWithItAreShownInOrder(t *testing.T) {
	for _, c := range []struct {
		name          string
		page, changed []string
		more          bool
		want          []string
	}{
		{"nothing changed", []string{"b@1", "c@1"}, nil, true, []string{"b@1", "c@1"}},
		{"the change is newer than the page", []string{"b@1", "c@1"}, []string{"c@2"}, true, []string{"b@1", "c@2"}},
		{"the page is newer than the change", []string{"b@1", "c@3"}, []string{"c@2"}, true, []string{"b@1", "c@3"}},
		{"of what an earlier page showed", []string{"c@1"}, []string{"a@2"}, true, []string{"a@2", "c@1"}},
		{"new within the page", []string{"a@1", "c@1"}, []string{"b@1"}, true, []string{"a@1", "b@1", "c@1"}},
		{"a later page will tell", []string{"a@1", "c@1"}, []string{"d@1"}, true, []string{"a@1", "c@1"}},
		{"no later page will tell", []string{"a@1", "c@1"}, []string{"d@1"}, false, []string{"a@1", "c@1", "d@1"}},
		{"an empty last page", nil, []string{"b@1", "a@7"}, false, []string{"a@7", "b@1"}},
	} {
		var got []string
		for _, r := range merge(found(c.page...), found(c.changed...), "a", c.more) {
			got = append(got, fmt.Sprintf("%s@%d", r.record.Resource, r.record.Revision))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}
