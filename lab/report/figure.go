package report

import (
	"fmt"
	"math"
	"strconv"
)

// figure is a time line, laid out.
type figure struct {
	Timeline
	Width, Height float64
	Left          float64
	Ticks         []tick
	Lanes         []laneBox
	Steps         []step
	Words         string
}

type tick struct {
	X     float64
	Label string
}

type laneBox struct {
	Name   string
	Y      float64
	Height float64
	TextY  float64
	Alt    bool
	Spans  []spanBox
	Marks  []markBox
}

type spanBox struct {
	X, Y, Width, Height float64
	TextX, TextY        float64
	Label               string
	Held                bool
	Title               string
}

type markBox struct {
	X, Y   float64
	Number int
	Kind   MarkKind
	Title  string
}

// step is one line of the list below a figure.
type step struct {
	Number int
	At     string
	Lane   string
	Kind   MarkKind
	Text   string
}

// The measures of a figure, in its own units: a page's width is figureWidth.
const (
	figureWidth = 1000.0
	laneLeft    = 150.0
	laneRight   = 16.0
	markSize    = 20.0
	spanHigh    = 22.0
	lanePad     = 8.0
	axisHigh    = 26.0
	charWidth   = 6.9 // of a label
)

func layOut(t Timeline) figure {
	f := figure{Timeline: t, Width: figureWidth, Left: laneLeft}
	end := max(t.EndMS, 1)
	for _, l := range t.Lanes { // nothing may lie outside
		for _, s := range l.Spans {
			end = max(end, s.ToMS)
		}
		for _, m := range l.Marks {
			end = max(end, m.AtMS)
		}
	}
	x := func(at float64) float64 {
		return Round(laneLeft + (figureWidth-laneLeft-laneRight)*min(max(at, 0), end)/end)
	}
	y := axisHigh
	numbers := numbered(t)
	for i, l := range t.Lanes {
		box := laneBox{Name: l.Name, Y: y, Alt: i%2 == 1}
		inner := y + lanePad
		rows := spanRows(l.Spans, x)
		for j, s := range l.Spans {
			from, to := x(s.FromMS), x(s.ToMS)
			b := spanBox{X: from, Y: inner + float64(rows[j])*(spanHigh+3), Width: max(3, to-from), Height: spanHigh, Held: s.Kind == Held}
			b.Title = fmt.Sprintf("%s, %s to %s", s.Label, stamp(s.FromMS), stamp(s.ToMS))
			if s.End != "" {
				b.Title += ", then " + s.End
			}
			b.TextX, b.TextY = from+6, b.Y+15
			if room := int((b.Width - 8) / charWidth); room >= len(s.Label) {
				b.Label = s.Label
			} else if room >= 4 {
				b.Label = string([]rune(s.Label)[:min(room-1, len([]rune(s.Label)))]) + "…"
			}
			box.Spans = append(box.Spans, b)
		}
		if n := most(rows); n > 0 {
			inner += float64(n) * (spanHigh + 3)
		}
		lines := markRows(l.Marks, x)
		for j, m := range l.Marks {
			text := m.Label
			if m.Why != "" {
				text += ": " + m.Why
			}
			box.Marks = append(box.Marks, markBox{
				X: x(m.AtMS), Y: inner + markSize/2 + float64(lines[j])*(markSize+2), Number: numbers[[2]int{i, j}], Kind: m.Kind, Title: stamp(m.AtMS) + ", " + text,
			})
		}
		inner += float64(most(lines)) * (markSize + 2)
		box.Height = max(inner-y+lanePad, spanHigh+2*lanePad)
		box.TextY = y + 22
		y += box.Height
		f.Lanes = append(f.Lanes, box)
	}
	f.Height = y + 4
	f.Ticks = ticks(end, x)
	f.Steps = steps(t, numbers)
	f.Words = fmt.Sprintf("Time line of round %d: %d events in %s, listed below.", t.Round, len(f.Steps), stamp(t.EndMS))
	return f
}

// numbered gives all marks of a time line their numbers, by time.
func numbered(t Timeline) map[[2]int]int {
	numbers := map[[2]int]int{}
	for n := 1; ; n++ {
		best, found := [2]int{}, false
		for i, l := range t.Lanes {
			for j, m := range l.Marks {
				k := [2]int{i, j}
				if _, done := numbers[k]; !done && (!found || m.AtMS < t.Lanes[best[0]].Marks[best[1]].AtMS) {
					best, found = k, true
				}
			}
		}
		if !found {
			return numbers
		}
		numbers[best] = n
	}
}

func steps(t Timeline, numbers map[[2]int]int) []step {
	all := make([]step, len(numbers))
	for k, n := range numbers {
		m := t.Lanes[k[0]].Marks[k[1]]
		text := m.Label
		if m.Why != "" {
			text += ": " + m.Why
		}
		all[n-1] = step{Number: n, At: stamp(m.AtMS), Lane: t.Lanes[k[0]].Name, Kind: m.Kind, Text: text}
	}
	return all
}

// spanRows puts spans that overlap below each other.
func spanRows(spans []Span, x func(float64) float64) []int {
	return rowsOf(len(spans), func(i int) (float64, float64) { return x(spans[i].FromMS), max(x(spans[i].ToMS), x(spans[i].FromMS)+3) })
}

// markRows puts marks that are close to each other below each other.
func markRows(marks []Mark, x func(float64) float64) []int {
	return rowsOf(len(marks), func(i int) (float64, float64) {
		return x(marks[i].AtMS) - markSize/2 - 1, x(marks[i].AtMS) + markSize/2 + 1
	})
}

func rowsOf(n int, bounds func(int) (from, to float64)) []int {
	var ends []float64
	rows := make([]int, n)
	for i := range n {
		from, to := bounds(i)
		row := 0
		for row < len(ends) && ends[row] > from {
			row++
		}
		if row == len(ends) {
			ends = append(ends, 0)
		}
		ends[row], rows[i] = to, row
	}
	return rows
}

func most(rows []int) (n int) {
	for _, r := range rows {
		n = max(n, r+1)
	}
	return n
}

// ticks are at round numbers, not more than ten.
func ticks(end float64, x func(float64) float64) (all []tick) {
	step := math.Pow(10, math.Floor(math.Log10(end/2)))
	for _, f := range []float64{1, 2, 5, 10, 20, 50} {
		if end/(step*f) <= 10 {
			step *= f
			break
		}
	}
	for at := 0.0; at <= end; at += step {
		all = append(all, tick{X: x(at), Label: stamp(at)})
	}
	return all
}

func stamp(atMS float64) string {
	switch {
	case atMS >= 1000:
		return strconv.FormatFloat(math.Round(atMS)/1000, 'f', -1, 64) + " s"
	case atMS >= 10 || atMS == 0:
		return strconv.FormatFloat(math.Round(atMS), 'f', -1, 64) + " ms"
	}
	return strconv.FormatFloat(math.Round(atMS*10)/10, 'f', -1, 64) + " ms"
}
