package bench

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Print writes the result for people, as Markdown that can be read as it is.
func (r Result) Print(w io.Writer) error {
	var b bytes.Buffer
	m := r.Machine
	fmt.Fprintf(&b, "%s, `%s`, %s: %d rounds of %d ms each, medians.\n\n", r.Date.Format("2006-01-02 15:04 MST"), r.Command, orUnknown(r.Commit), r.Rounds, r.WindowMS)
	fmt.Fprintf(&b, "%s, %s, %d cores, %s. 4 KiB written and synced: %s. Load before the run: %.2f.\n",
		m.System, orUnknown(m.CPU), m.Cores, m.Go, duration(m.FsyncMicros), m.LoadBefore)
	for _, missing := range r.Missing {
		fmt.Fprintf(&b, "\nWithout %s: %s.\n", missing.Peer, missing.Why)
	}
	for _, report := range r.Reports {
		report.print(&b)
	}
	_, err := w.Write(b.Bytes())
	return err
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

func (r Report) print(b *bytes.Buffer) {
	fmt.Fprintf(b, "\n### %s: %s\n\n", r.ID, r.Title)
	head := []string{"case", "side"}
	for _, c := range r.Columns {
		head = append(head, c.Title)
	}
	rows := [][]string{head}
	for _, row := range r.inCases() {
		side := row.Subject
		if row.Version != "" {
			side += " (" + row.Version + ")"
		}
		cells := []string{row.Case, side}
		for _, c := range r.Columns {
			v, ok := row.Values[c.Name]
			cells = append(cells, number(c.Name, v, ok))
		}
		rows = append(rows, cells)
	}
	grid(b, rows)
	if len(r.Ratios) > 0 {
		rows = [][]string{{"case", "figure", "ratio of", "to", "is", "goal", ""}}
		for _, q := range r.Ratios {
			rows = append(rows, []string{q.Case, r.title(q.Of), q.Subject, q.Against, times(q.Ratio), q.goal(), q.verdict()})
		}
		b.WriteByte('\n')
		grid(b, rows)
	}
	for i, n := range r.Notes {
		if i == 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(b, "- %s\n", n)
	}
}

// inCases is the rows, those of one case together, in the order of their first.
func (r Report) inCases() []Row {
	var order []string
	of := map[string][]Row{}
	for _, row := range r.Rows {
		if of[row.Case] == nil {
			order = append(order, row.Case)
		}
		of[row.Case] = append(of[row.Case], row)
	}
	var rows []Row
	for _, in := range order {
		rows = append(rows, of[in]...)
	}
	return rows
}

func (r Report) title(column string) string {
	for _, c := range r.Columns {
		if c.Name == column {
			return c.Title
		}
	}
	return column
}

// times is a ratio with at least two digits that say something.
func times(ratio float64) string {
	if ratio != 0 && ratio < 0.1 {
		return strconv.FormatFloat(ratio, 'g', 2, 64) + " ×"
	}
	return fmt.Sprintf("%.2f ×", ratio)
}

func (q Ratio) goal() string {
	switch {
	case q.AtLeast > 0:
		return fmt.Sprintf("≥ %.2f ×", q.AtLeast)
	case q.AtMost > 0:
		return fmt.Sprintf("≤ %.2f ×", q.AtMost)
	}
	return ""
}

func (q Ratio) verdict() string {
	switch {
	case q.goal() == "":
		return ""
	case q.Met():
		return "met"
	}
	return "short"
}

// grid aligns the cells; the first row is the head.
func grid(b *bytes.Buffer, rows [][]string) {
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell), 3)
		}
	}
	for n, row := range rows {
		for i, cell := range row {
			fmt.Fprintf(b, "| %s%s ", cell, strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell)))
		}
		b.WriteString("|\n")
		if n == 0 {
			for _, w := range width {
				fmt.Fprintf(b, "|%s", strings.Repeat("-", w+2))
			}
			b.WriteString("|\n")
		}
	}
}

// number is a figure for people, in the unit of its column.
func number(column string, v float64, known bool) string {
	switch {
	case !known:
		return ""
	case strings.HasSuffix(column, "_us"), column == microsEach.Name:
		return duration(v)
	case v != 0 && v < 10 && v != float64(int(v)):
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return thousands(v)
}

// duration is so many µs.
func duration(us float64) string {
	switch sign := max(us, -us); {
	case sign >= 1e6:
		return fmt.Sprintf("%.2f s", us/1e6)
	case sign >= 1e4:
		return fmt.Sprintf("%.0f ms", us/1e3)
	case sign >= 1e3:
		return fmt.Sprintf("%.1f ms", us/1e3)
	case sign >= 10:
		return fmt.Sprintf("%.0f µs", us)
	}
	return fmt.Sprintf("%.2f µs", us)
}

func thousands(v float64) string {
	s := strconv.FormatFloat(v, 'f', 0, 64)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// The marks between which [Paste] puts a table.
const (
	beginMark = "<!-- figures: written by lastword bench --doc -->"
	endMark   = "<!-- end of figures -->"
)

// Paste replaces what stands between the marks of a page by the printed result.
func Paste(page []byte, r Result) ([]byte, error) {
	begin, end := bytes.Index(page, []byte(beginMark)), bytes.Index(page, []byte(endMark))
	if begin < 0 || end < begin {
		return nil, invalid("the page has no lines %q and, behind it, %q", beginMark, endMark)
	}
	var b bytes.Buffer
	b.Write(page[:begin+len(beginMark)])
	b.WriteString("\n\n")
	if err := r.Print(&b); err != nil {
		return nil, err
	}
	b.WriteByte('\n')
	b.Write(page[end:])
	return b.Bytes(), nil
}
