package lastword_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// packagesOf parses every directory of the module that holds Go files, generated
// and nested modules left out.
func packagesOf(t *testing.T) map[string][]*ast.File {
	t.Helper()
	fset := token.NewFileSet()
	found := map[string][]*ast.File{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			nested := path != "." && exists(filepath.Join(path, "go.mod"))
			if nested || strings.HasPrefix(d.Name(), ".") && path != "." || d.Name() == "testdata" || d.Name() == "bin" {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, ".pb.go") || strings.HasSuffix(path, ".pb.gw.go") {
			return nil
		}
		file, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(filepath.Dir(path))
		found[dir] = append(found[dir], file)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func isTest(f *ast.File) bool { return strings.HasSuffix(f.Name.Name, "_test") || importsTesting(f) }

func importsTesting(f *ast.File) bool {
	for _, i := range f.Imports {
		if i.Path.Value == `"testing"` {
			return true
		}
	}
	return false
}

// TestEveryPackageSaysWhatItGuaranteesAndWhatNot: a promise stands where it is
// kept, and its limits beside it.
func TestEveryPackageSaysWhatItGuaranteesAndWhatNot(t *testing.T) {
	for dir, files := range packagesOf(t) {
		var comment strings.Builder
		production := false
		for _, f := range files {
			if !strings.HasSuffix(f.Name.Name, "_test") {
				production = true
				comment.WriteString(f.Doc.Text())
			}
		}
		if !production {
			continue
		}
		for _, section := range []string{"# Guarantees", "# Not guaranteed"} {
			if !strings.Contains(comment.String(), section) {
				t.Errorf("%s: the package comment has no section %q", dir, section)
			}
		}
	}
}

// TestEveryPublicPackageHasAnExampleThatRuns: an example without "Output:" is
// compiled and never run.
func TestEveryPublicPackageHasAnExampleThatRuns(t *testing.T) {
	for dir, files := range packagesOf(t) {
		if strings.HasPrefix(dir, "internal") || strings.HasPrefix(dir, "cmd") || strings.HasPrefix(dir, "lab") || strings.HasPrefix(dir, "examples") {
			continue
		}
		var tests []*ast.File
		for _, f := range files {
			if isTest(f) {
				tests = append(tests, f)
			}
		}
		runs := 0
		for _, e := range doc.Examples(tests...) {
			if e.Output != "" || e.EmptyOutput {
				runs++
			}
		}
		if runs == 0 {
			t.Errorf("%s: no example with an output", dir)
		}
	}
}
