package report_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/lastword/lastword/lab/report"
)

// hostile is what a name would be if it could become markup.
const hostile = `"><script>alert(1)</script><img src=//x.example/y onerror=alert(1)>' onload='x'</title></svg>{{.}}</style>`

// sample is a run with one of everything, all names being name.
func sample(name string) *report.Run {
	return &report.Run{
		Kind: "real", Build: name, Command: name, Seed: 1<<64 - 1,
		Options:  report.Options{{Name: "rounds", Value: "2"}, {Name: name, Value: name}},
		Counters: report.Counters{Rounds: 12345, ProtectedMutations: 7, CheckedMutations: 7, HandoverP99MS: 4.25, More: map[string]int{name: 3}},
		Gates:    []report.Gate{{Name: "stale_accepted", Want: "0", Got: "0", Holds: true}, {Name: name, Want: name, Got: name, Holds: true}},
		Faults:   []report.Fault{{Name: name, Cases: []string{name}, Fired: 4, Effect: 2}},
		Handover: []report.Bucket{{UpToMS: 1, Released: 3}, {UpToMS: 25, Released: 1, Crashed: 2}},
		Timelines: []report.Timeline{{
			Title: name, Resource: name, Round: 1, Faults: []string{name}, EndMS: 100,
			Lanes: []report.Lane{
				{
					Name: name, Spans: []report.Span{{FromMS: 1, ToMS: 60, Kind: report.Held, Label: name, End: name}, {FromMS: 20, ToMS: 90, Kind: report.Hurt, Label: name}},
					Marks: []report.Mark{{AtMS: 60, Kind: report.Note, Label: name, Why: name}},
				},
				{Name: "the resource", Marks: []report.Mark{
					{AtMS: 10, Kind: report.Accepted, Label: name, Why: name}, {AtMS: 11, Kind: report.Refused, Label: name, Why: name}, {AtMS: 95, Kind: report.Unknown, Label: name},
				}},
			},
		}},
		Notes: []string{name}, TraceHash: name, TookMS: 1500,
	}
}

func html(t *testing.T, r *report.Run) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.HTML(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// elements are the elements of a page that is well-formed, with their attributes.
func elements(t *testing.T, page string) (all []xml.StartElement, text string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(page))
	d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	var b strings.Builder
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all, b.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			all = append(all, token.Copy())
		case xml.CharData:
			b.Write(token)
		}
	}
}

// T17, T24: what others chose stays text.
func TestAHostileNameIsOnlyText(t *testing.T) {
	t.Parallel()
	r := sample(hostile)
	r.Failures = []report.Failure{{Kind: hostile, Detail: hostile, Events: []string{hostile}, Repeat: hostile}}
	r.Gates[1].Holds = false
	got, text := elements(t, html(t, r))
	plain := sample("name")
	plain.Failures = []report.Failure{{Kind: "name", Detail: "name", Events: []string{"name"}, Repeat: "name"}}
	plain.Gates[1].Holds = false
	want, _ := elements(t, html(t, plain))
	if len(got) != len(want) {
		t.Errorf("%d elements with hostile names, %d with plain ones", len(got), len(want))
	}
	for i := range min(len(got), len(want)) {
		if got[i].Name != want[i].Name || len(got[i].Attr) != len(want[i].Attr) {
			t.Fatalf("element %d is %v, want %v", i, got[i], want[i])
		}
	}
	if n := strings.Count(text, "<script>alert(1)</script>"); n < 20 {
		t.Errorf("the name is shown %d times", n)
	}
}

func TestThePageLoadsAndRunsNothing(t *testing.T) {
	t.Parallel()
	page := html(t, sample("name"))
	all, _ := elements(t, page)
	for _, e := range all {
		switch e.Name.Local {
		case "script", "link", "img", "iframe", "object", "embed", "image", "use", "a", "form", "video", "audio", "source", "base", "foreignObject":
			t.Errorf("there is a %s", e.Name.Local)
		}
		for _, a := range e.Attr {
			if strings.HasPrefix(a.Name.Local, "on") || a.Name.Local == "href" || a.Name.Local == "src" {
				t.Errorf("%s has %s", e.Name.Local, a.Name.Local)
			}
		}
	}
	for _, forbidden := range []string{"://", "@import", "url(//", "javascript:", "ZgotmplZ"} {
		if strings.Contains(page, forbidden) {
			t.Errorf("the page has %q", forbidden)
		}
	}
	for _, needed := range []string{"@media print", "prefers-color-scheme: dark", "default-src 'none'", `lang="en"`} {
		if !strings.Contains(page, needed) {
			t.Errorf("the page lacks %q", needed)
		}
	}
}

// Whoever does not see the pictures, or not the colours, reads the same.
func TestEveryPictureHasItsWords(t *testing.T) {
	t.Parallel()
	page := html(t, sample("name"))
	all, text := elements(t, page)
	ids := map[string]bool{}
	for _, e := range all {
		for _, a := range e.Attr {
			if a.Name.Local == "id" {
				if ids[a.Value] {
					t.Errorf("the id %s occurs twice", a.Value)
				}
				ids[a.Value] = true
			}
		}
	}
	for _, e := range all {
		if e.Name.Local != "svg" {
			continue
		}
		attr := map[string]string{}
		for _, a := range e.Attr {
			attr[a.Name.Local] = a.Value
		}
		if attr["aria-hidden"] == "true" {
			continue
		}
		if attr["role"] != "img" || !ids[attr["aria-labelledby"]] {
			t.Errorf("a picture without words: %v", attr)
		}
	}
	for _, e := range all {
		if e.Name.Local == "th" && !strings.Contains(fmt.Sprint(e.Attr), "scope") {
			t.Errorf("a head of a table without scope: %v", e.Attr)
		}
	}
	for _, words := range []string{"at most 25 ms: 1 after a release, 2 after a crash", "10 ms", "✓ yes", "write accepted (round)"} {
		if !strings.Contains(text, words) {
			t.Errorf("the page does not say %q", words)
		}
	}
}

func TestEmptyRunsHaveAPageToo(t *testing.T) {
	t.Parallel()
	page := html(t, &report.Run{Kind: "simulated"})
	if !strings.Contains(page, "The run failed.") || strings.Contains(page, "Time lines") {
		t.Error("a run without gates has not passed, and has no time lines")
	}
}

func TestEverythingOfATimeLineIsInsideItAndNothingLiesOnAnother(t *testing.T) {
	t.Parallel()
	r := sample("name")
	line := &r.Timelines[0]
	for i := range 40 { // a crowd
		line.Lanes[1].Marks = append(line.Lanes[1].Marks, report.Mark{AtMS: 50 + float64(i)/10, Kind: report.Accepted, Label: "crowd"})
	}
	line.Lanes[1].Marks = append(line.Lanes[1].Marks, report.Mark{AtMS: 130, Kind: report.Note, Label: "after the end"})
	page := html(t, r)
	places := regexp.MustCompile(`translate\(([-0-9.]+) ([-0-9.]+)\)`).FindAllStringSubmatch(page, -1)
	if len(places) != 45 {
		t.Fatalf("%d marks", len(places))
	}
	type place struct{ x, y float64 }
	var all []place
	for _, m := range places {
		var p place
		if _, err := fmt.Sscan(m[1], &p.x); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscan(m[2], &p.y); err != nil {
			t.Fatal(err)
		}
		if p.x < 150 || p.x > 1000 {
			t.Errorf("a mark at %v", p.x)
		}
		for _, other := range all {
			if abs(p.x-other.x) < 19 && abs(p.y-other.y) < 19 {
				t.Errorf("marks at %v and %v", p, other)
			}
		}
		all = append(all, p)
	}
}

func abs(v float64) float64 { return max(v, -v) }

func TestARunIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	r := sample("name")
	var first, second bytes.Buffer
	if err := r.Write(&first); err != nil {
		t.Fatal(err)
	}
	again, err := report.Read(bytes.NewReader(first.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Write(&second); err != nil {
		t.Fatal(err)
	}
	if first.String() != second.String() {
		t.Errorf("written again it is another one:\n%s\n%s", first.String(), second.String())
	}
	var flat map[string]any
	if err := json.Unmarshal(first.Bytes(), &flat); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"rounds", "stale_accepted", "forged_accepted", "highwater_polluted", "segment_jumps_accepted",
		"protected_mutations", "checked_mutations", "unknown_open", "handover_p99_ms",
	} {
		if _, ok := flat[name].(float64); !ok {
			t.Errorf("%s is %v, want a number at the top", name, flat[name])
		}
	}
	if flat["seed"] != "18446744073709551615" {
		t.Errorf("the seed is %v", flat["seed"])
	}
}

func TestWhatIsNoRunIsRefused(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"nothing": "", "no object": "[1]", "another object": `{"experiment":"takeover"}`, "no kind": `{}`, "a member too many": `{"kind":"real","more_of_it":1}`,
		"two": `{"kind":"real"}{"kind":"real"}`, "options that are none": `{"kind":"real","options":[1]}`, "half": `{"kind":"re`,
	} {
		if _, err := report.Read(strings.NewReader(text)); err == nil {
			t.Errorf("%s was read", name)
		}
	}
}

func TestARunIsOKOnlyIfItShowedWhatItWasToShow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(*report.Run)
		ok     bool
		says   string
	}{
		{"all gates hold", func(*report.Run) {}, true, "All 2 gates hold."},
		{"one does not", func(r *report.Run) { r.Gates[0].Holds = false }, false, "1 of 2 gates do not hold."},
		{"no gates", func(r *report.Run) { r.Gates = nil }, false, "The run failed."},
		{"interrupted", func(r *report.Run) { r.Interrupted = true }, false, "Interrupted after 12345 rounds: 0 of 2 gates do not hold."},
		{"a failure beside the gates", func(r *report.Run) { r.Failures = []report.Failure{{Kind: "round"}} }, false, "The run failed."},
		{"a defect that was found", func(r *report.Run) { r.Variant, r.Gates[0].Holds = "no-fence", false }, true, "The defect no-fence was found: stale_accepted."},
		{"a defect that was not found", func(r *report.Run) { r.Variant = "no-fence" }, false, "The defect no-fence was not found."},
		{"a defect, and a slow machine", func(r *report.Run) {
			r.Variant = "no-fence"
			r.Gates = append(r.Gates, report.Gate{Name: "handover_p99_ms"}, report.Gate{Name: "fault_coverage"})
		}, false, "The defect no-fence was not found."},
	} {
		r := sample("name")
		c.change(r)
		if r.OK() != c.ok || r.Verdict() != c.says {
			t.Errorf("%s: ok %t, %q", c.name, r.OK(), r.Verdict())
		}
	}
}

func TestLinesForATerminalStayLines(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := sample("a\x1b[2Jb\nc").Print(&b); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsRune(b.String(), '\x1b') || strings.Contains(b.String(), "b\nc") {
		t.Errorf("%q", b.String())
	}
	if !strings.HasSuffix(b.String(), "\nAll 2 gates hold.\nagain: a [2Jb c\n") {
		t.Errorf("it ends with %q", b.String()[max(0, b.Len()-80):])
	}
}

func TestCasesAreInTheirOrder(t *testing.T) {
	t.Parallel()
	for _, c := range [][2]string{{"X1", "X2"}, {"X2", "X10"}, {"X36", "R7"}, {"X1", "X1a"}} {
		if report.CompareCases(c[0], c[1]) >= 0 || report.CompareCases(c[1], c[0]) <= 0 {
			t.Errorf("%s does not come before %s", c[0], c[1])
		}
	}
}
