package model_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mutant is one condition made wrong.
type mutant struct {
	number int
	file   string
	key    string // where it is, what stands there, and what stands there instead
}

// mutantHook is what the mutants of a package ask.
const mutantHook = `package core

import (
	"os"
	"strconv"
)

var mutantNumber, _ = strconv.Atoi(os.Getenv("` + mutantVariable + `"))

func mutated(n int) bool { return mutantNumber == n }

// never is v, or under mutant n a value that nothing has.
func never[T ~string | ~int | ~uint8](n int, v, nothing T) T {
	if mutated(n) {
		return nothing
	}
	return v
}

func instead[T any](n int, v, other T) T {
	if mutated(n) {
		return other
	}
	return v
}
`

// notRules are files of the package that hold no rule.
var notRules = []string{"verdicts.go"}

// writeMutants writes the package at source into dir with every mutant in it, and the
// overlay that puts it in the place of source.
func writeMutants(t *testing.T, source, dir string) []mutant {
	t.Helper()
	source, err := filepath.Abs(source)
	if err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(source, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	g := &mutator{seen: map[string]int{}, done: map[ast.Node]bool{}}
	replace := map[string]string{filepath.Join(source, "mutants_hook.go"): filepath.Join(dir, "mutants_hook.go")}
	write := func(name string, b []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range names {
		name := filepath.Base(path)
		if strings.HasSuffix(name, "_test.go") || slices.Contains(notRules, name) {
			continue
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		write(name, g.file(t, name, b))
		replace[path] = filepath.Join(dir, name)
	}
	write("mutants_hook.go", []byte(mutantHook))
	writeOverlay(t, dir, replace)
	return g.all
}

// mutator rewrites files. Every place is replaced by an expression that is the old one
// unless its mutant runs.
type mutator struct {
	all  []mutant
	seen map[string]int
	done map[ast.Node]bool

	name, function string
	text           []byte
	base           token.Pos
	edits          []edit
}

type edit struct {
	from, to int
	text     string
}

func (g *mutator) file(t *testing.T, name string, text []byte) []byte {
	t.Helper()
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, name, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	g.name, g.text, g.base, g.edits = name, text, token.Pos(files.File(f.Pos()).Base()), nil
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
			g.function = fn.Name.Name
			ast.Inspect(fn.Body, g.node)
		}
	}
	slices.SortStableFunc(g.edits, func(a, b edit) int { return b.from - a.from })
	for _, e := range g.edits {
		text = slices.Concat(text[:e.from], []byte(e.text), text[e.to:])
	}
	out, err := format.Source(text)
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, text)
	}
	return out
}

// node looks for conditions: whole ones, which are then taken apart.
func (g *mutator) node(n ast.Node) bool {
	if g.done[n] {
		return false
	}
	switch n := n.(type) {
	case *ast.BinaryExpr:
		if boolean(n.Op) {
			g.put(n, g.condition(n))
			return false
		}
	case *ast.IfStmt:
		g.whole(n.Cond)
	case *ast.SwitchStmt:
		g.cases(n)
	case *ast.CallExpr:
		if fn, ok := n.Fun.(*ast.Ident); ok && (fn.Name == "max" || fn.Name == "min") {
			g.put(n, g.extreme(n))
			return false
		}
	}
	return true
}

// whole takes a condition that is no operator: a name, a call, a negation.
func (g *mutator) whole(e ast.Expr) {
	if b, ok := e.(*ast.BinaryExpr); ok && boolean(b.Op) {
		return // node will come to it
	}
	g.put(e, g.condition(e))
	g.done[e] = true
}

func boolean(op token.Token) bool {
	return slices.Contains([]token.Token{token.LAND, token.LOR, token.EQL, token.NEQ, token.LSS, token.LEQ, token.GTR, token.GEQ}, op)
}

// condition is e as text, with the mutants of all its parts.
func (g *mutator) condition(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return "(" + g.condition(e.X) + ")"
	case *ast.BinaryExpr:
		if e.Op == token.LAND || e.Op == token.LOR {
			return "(" + g.condition(e.X) + " " + e.Op.String() + " " + g.condition(e.Y) + ")"
		}
	}
	text := g.inside(e)
	out := text
	add := func(other string) {
		n := g.add(g.source(e), other)
		out = fmt.Sprintf("(mutated(%d) && (%s) || !mutated(%d) && %s)", n, other, n, out)
	}
	if b, ok := e.(*ast.BinaryExpr); ok {
		if other, ok := map[token.Token]string{token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">"}[b.Op]; ok {
			add(g.source(b.X) + " " + other + " " + g.source(b.Y))
		}
	}
	add("true")
	add("false")
	return out
}

// extreme is a min or max that may be one of its arguments.
func (g *mutator) extreme(call *ast.CallExpr) string {
	name := call.Fun.(*ast.Ident).Name
	var args []string
	for _, a := range call.Args {
		args = append(args, g.inside(a))
	}
	out := name + "(" + strings.Join(args, ", ") + ")"
	for i, a := range call.Args {
		n := g.add(g.source(call), g.source(a))
		out = fmt.Sprintf("instead(%d, %s, %s)", n, out, args[i])
	}
	return out
}

// cases lets each value of a switch be missing.
func (g *mutator) cases(s *ast.SwitchStmt) {
	if s.Tag == nil {
		for _, c := range s.Body.List {
			for _, e := range c.(*ast.CaseClause).List {
				g.whole(e)
			}
		}
		return
	}
	for _, c := range s.Body.List {
		for _, e := range c.(*ast.CaseClause).List {
			n := g.add("case "+g.source(e), "no case")
			nothing := `"\x00"`
			if name := g.source(e); name == "stillHeld" || name == "isOver" || name == "unsaid" {
				nothing = "255"
			}
			g.put(e, fmt.Sprintf("never(%d, %s, %s)", n, g.source(e), nothing))
		}
	}
}

// inside is e as text, with the mutants of what stands inside it.
func (g *mutator) inside(e ast.Expr) string {
	outer := g.edits
	g.edits = nil
	ast.Inspect(e, func(n ast.Node) bool {
		if n == e {
			return true
		}
		return g.node(n)
	})
	inner := g.edits
	g.edits = outer
	from := g.at(e.Pos())
	text := bytes.Clone(g.text[from:g.at(e.End())])
	slices.SortStableFunc(inner, func(a, b edit) int { return b.from - a.from })
	for _, i := range inner {
		text = slices.Concat(text[:i.from-from], []byte(i.text), text[i.to-from:])
	}
	return string(text)
}

func (g *mutator) put(e ast.Expr, text string) {
	g.edits = append(g.edits, edit{g.at(e.Pos()), g.at(e.End()), text})
}

func (g *mutator) at(p token.Pos) int { return int(p - g.base) }

func (g *mutator) source(e ast.Expr) string {
	return strings.Join(strings.Fields(string(g.text[g.at(e.Pos()):g.at(e.End())])), " ")
}

// add gives a mutant its number, and a key that does not change when lines move.
func (g *mutator) add(old, other string) int {
	key := fmt.Sprintf("%s %s: %s → %s", g.name, g.function, old, other)
	g.seen[key]++
	if n := g.seen[key]; n > 1 {
		key += fmt.Sprintf(" (%d)", n)
	}
	n := len(g.all) + 1
	g.all = append(g.all, mutant{n, g.name, key})
	return n
}
