package lastword_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"
)

// surface is what the root package exports, read from its files.
type surface struct {
	types, functions           []string // functions without methods
	codes, verdicts, sentinels map[string]bool
}

func exported(t *testing.T) surface {
	t.Helper()
	s := surface{codes: map[string]bool{}, verdicts: map[string]bool{}, sentinels: map[string]bool{}}
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		src, err := os.ReadFile(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), e.Name(), src, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			s.add(d)
		}
	}
	return s
}

func (s *surface) add(d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil && d.Name.IsExported() {
			s.functions = append(s.functions, d.Name.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				if spec.Name.IsExported() {
					s.types = append(s.types, spec.Name.Name)
				}
			case *ast.ValueSpec:
				s.addValues(spec)
			}
		}
	}
}

func (s *surface) addValues(spec *ast.ValueSpec) {
	typ, _ := spec.Type.(*ast.Ident)
	for _, name := range spec.Names {
		switch {
		case typ != nil && typ.Name == "Verdict":
			s.verdicts[name.Name] = true
		case strings.HasPrefix(name.Name, "Code"):
			s.codes[name.Name] = true
		case strings.HasPrefix(name.Name, "Err"):
			s.sentinels[name.Name] = true
		}
	}
}

// TestRootStaysSmall: who knows the root can read every other package, so it has
// at most 40 types and functions. What does not fit belongs to a room.
func TestRootStaysSmall(t *testing.T) {
	t.Parallel()
	const budget = 40
	s := exported(t)
	if !slices.Contains(s.types, "Token") || !slices.Contains(s.functions, "ParseToken") {
		t.Fatalf("the surface was not read: types %q, functions %q", s.types, s.functions)
	}
	if n := len(s.types) + len(s.functions); n > budget {
		t.Errorf("%d exported types and functions, more than %d: types %q, functions %q", n, budget, s.types, s.functions)
	}
}
