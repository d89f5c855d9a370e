package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strconv"
	"strings"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"meaning": Meaning, "join": func(s []string) string { return strings.Join(s, ", ") }, "number": number, "add": func(a, b int) int { return a + b },
}).Parse(pageText))

// HTML writes the run as one page that needs nothing beside itself: no script, no font,
// no picture. It prints.
func (r *Run) HTML(w io.Writer) error {
	v := view{Run: r, Took: r.took().String()}
	for _, t := range r.Timelines {
		v.Figures = append(v.Figures, layOut(t))
	}
	v.Chart = chartOf(r.Handover)
	for name, n := range r.More {
		v.More = append(v.More, counter{name, number(n)})
	}
	slices.SortFunc(v.More, func(a, b counter) int { return strings.Compare(a.Name, b.Name) })
	for _, f := range r.Faults {
		row := faultRow{Fault: f, Never: f.Fired == 0 || f.Effect == 0}
		if f.Fired > 0 {
			row.Share = 60 * min(1, float64(f.Effect)/float64(f.Fired))
		}
		v.Faults = append(v.Faults, row)
	}
	return page.Execute(w, v)
}

// view is what the page shows.
type view struct {
	*Run
	Took    string
	Figures []figure
	Chart   chart
	More    []counter
	Faults  []faultRow
}

type counter struct{ Name, Value string }

type faultRow struct {
	Fault
	Never bool
	Share float64 // of 60
}

// number groups the digits by three.
func number(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "\u202f" + text[i:]
	}
	return text
}

// chart is the distribution of hand-overs, drawn.
type chart struct {
	Width, Height float64
	Base          float64 // where the bars stand
	Bars          []bar
	Words         string // all of it, for who does not see
}

type bar struct {
	X, Width           float64
	Released, Crashed  column
	Label              string
	LabelX, LabelWidth float64
}

type column struct {
	X, Y, Height float64
	Count        string
	CountX       float64
	CountY       float64
	Shown        bool
}

const (
	barStep   = 76.0
	barWidth  = 26.0
	barsHigh  = 150.0
	barsAbove = 26.0
)

func chartOf(buckets []Bucket) chart {
	c := chart{Width: max(1, float64(len(buckets))) * barStep, Height: barsAbove + barsHigh + 30, Base: barsAbove + barsHigh}
	released, crashed := 0, 0
	for _, b := range buckets {
		released, crashed = max(released, b.Released), max(crashed, b.Crashed)
	}
	var words []string
	for i, b := range buckets {
		x := float64(i) * barStep
		v := bar{X: x, Width: barStep, Label: "≤ " + strconv.FormatFloat(b.UpToMS, 'g', -1, 64) + " ms", LabelX: x + barStep/2}
		v.Released = columnOf(x+barStep/2-barWidth-2, b.Released, released, c.Base)
		v.Crashed = columnOf(x+barStep/2+2, b.Crashed, crashed, c.Base)
		c.Bars = append(c.Bars, v)
		words = append(words, fmt.Sprintf("at most %g ms: %d after a release, %d after a crash", b.UpToMS, b.Released, b.Crashed))
	}
	c.Words = strings.Join(words, "; ")
	return c
}

// columnOf is as high as its share of the highest one of its kind.
func columnOf(x float64, n, most int, base float64) column {
	if n == 0 {
		return column{}
	}
	h := max(2, barsHigh*float64(n)/float64(most))
	return column{X: x, Y: base - h, Height: h, Count: number(n), CountX: x + barWidth/2, CountY: base - h - 6, Shown: true}
}
