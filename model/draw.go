package model

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/lastword/lastword"
)

// Draw writes a counter-example as a time line: one column for each process that
// takes part, one line for each event, the resource's value at the right. Width is
// how many columns of characters there are; 0 is 100. Lines may be longer where the
// columns would become too narrow. The error is out's.
func Draw(out io.Writer, v Violation, width int) error {
	if len(v.Values) != len(v.Events) {
		return &lastword.Error{Code: lastword.CodeInvalid, Op: "draw", Message: "events and values differ in number"}
	}
	if width <= 0 {
		width = 100
	}
	d := drawing{b: bufio.NewWriter(out)}
	for _, name := range actorNames {
		if slices.ContainsFunc(v.Events, func(e Event) bool { return e.Actor == name }) {
			d.columns = append(d.columns, name)
		}
	}
	d.value = len("value")
	for _, value := range v.Values {
		d.value = max(d.value, utf8.RuneCountInString(value))
	}
	d.cell = max(14, (width-len(numberCell)-d.value)/max(1, len(d.columns))-1)
	fmt.Fprintf(d.b, "%s (world %s, %d events)\n", v.Kind, v.World, len(v.Events))
	d.row("", d.columns, "value")
	for i, e := range v.Events {
		d.event(i+1, e, v.Values[i])
	}
	return d.b.Flush()
}

const numberCell = "    "

type drawing struct {
	b       *bufio.Writer
	columns []string
	cell    int
	value   int
}

func (d *drawing) event(n int, e Event, value string) {
	for k, line := range wrap(e.Text, d.cell-1) {
		cells := make([]string, len(d.columns))
		for c, name := range d.columns {
			cells[c] = "│"
			if name == e.Actor {
				cells[c] = line
			}
		}
		if k == 0 {
			d.row(fmt.Sprint(n), cells, value)
		} else {
			d.row("", cells, "")
		}
	}
}

func (d *drawing) row(number string, cells []string, value string) {
	var b strings.Builder
	fmt.Fprintf(&b, "%3s ", number)
	for _, c := range cells {
		b.WriteString(c)
		b.WriteString(strings.Repeat(" ", max(1, d.cell+1-utf8.RuneCountInString(c))))
	}
	b.WriteString(value)
	fmt.Fprintln(d.b, strings.TrimRight(b.String(), " "))
}

// wrap breaks text at spaces into lines of at most width characters; a longer word
// stays whole.
func wrap(text string, width int) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= width:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
	}
	return append(lines, line)
}
