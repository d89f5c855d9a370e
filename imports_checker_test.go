package lastword_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// file is one Go file and what it imports, whatever its build constraints.
type file struct {
	name    string // slash-separated, relative to the root of the module
	imports []string
}

// pkg is the package's path inside the module, "" for the root.
func (f file) pkg() string {
	if dir := path.Dir(f.name); dir != "." {
		return dir
	}
	return ""
}

func (f file) isTest() bool { return strings.HasSuffix(f.name, "_test.go") }

// parseImports reads the import clauses of every Go file below the root. Like
// the go command it leaves out testdata, directories that begin with "." or "_",
// and nested modules.
func parseImports(root fs.FS) ([]file, error) {
	var files []file
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return enter(root, name)
		}
		if path.Ext(name) != ".go" {
			return nil
		}
		src, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		tree, err := parser.ParseFile(token.NewFileSet(), name, src, parser.ImportsOnly)
		if err != nil {
			return err
		}
		f := file{name: name}
		for _, spec := range tree.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			f.imports = append(f.imports, imported)
		}
		files = append(files, f)
		return nil
	})
	return files, err
}

func enter(root fs.FS, dir string) error {
	if dir == "." {
		return nil
	}
	base := path.Base(dir)
	if base == "testdata" || base[0] == '.' || base[0] == '_' {
		return fs.SkipDir
	}
	if _, err := fs.Stat(root, path.Join(dir, "go.mod")); err == nil {
		return fs.SkipDir
	}
	return nil
}

// checkImports returns one sentence for each import that crosses an arrow.
func checkImports(files []file, table []room) []string {
	var found []string
	unknown := map[string]bool{}
	for _, f := range files {
		if f.isTest() {
			continue // anything that makes no cycle; the compiler sees to that
		}
		r, ok := findRoom(table, f.pkg())
		if !ok {
			if !unknown[f.pkg()] {
				unknown[f.pkg()] = true
				found = append(found, fmt.Sprintf("package %q is not in the import table: add a line for it to rooms in imports_test.go that says what it may import, or move its files into a package that is there", f.pkg()))
			}
			continue
		}
		for _, imported := range f.imports {
			if why := forEverybody(f.pkg(), imported); why != "" {
				found = append(found, fmt.Sprintf("%s imports %s: %s", f.name, imported, why))
				continue
			}
			if why := r.refuses(imported); why != "" {
				found = append(found, fmt.Sprintf("%s imports %s: %s", f.name, imported, why))
			}
		}
	}
	return found
}

func findRoom(table []room, pkg string) (room, bool) {
	for _, r := range table {
		if covers(r.path, pkg) {
			return r, true
		}
	}
	return room{}, false
}

// covers reports whether the table's path names pkg.
func covers(pattern, pkg string) bool {
	if tree, ok := strings.CutSuffix(pattern, "/..."); ok {
		return within(pkg, tree)
	}
	return pattern == pkg
}

// within reports whether the import path p is prefix or lies below it.
func within(p, prefix string) bool {
	return p == prefix || strings.HasPrefix(p, prefix+"/")
}

// local is the path inside the module of an import of ours.
func local(imported string) (string, bool) {
	if imported == module {
		return "", true
	}
	return strings.CutPrefix(imported, module+"/")
}

func isStandard(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return !strings.Contains(first, ".") && imported != "C"
}

// forEverybody holds the rules that no line of the table can lift.
func forEverybody(pkg, imported string) string {
	if imported == "C" {
		return "everything must build with CGO_ENABLED=0"
	}
	if within(imported, "testing") && !strings.HasSuffix(pkg, "test") {
		return "only packages whose name ends in test may import testing outside _test.go files"
	}
	if slices.Contains(keyPackages, imported) && !keepsKeys(pkg) {
		return "nobody but grant touches keys"
	}
	target, ours := local(imported)
	switch {
	case !ours:
		return ""
	case within(target, "cmd"):
		return "nothing imports cmd"
	case within(target, "lab") && !within(pkg, "cmd") && !within(pkg, "lab"),
		within(target, "bench") && !within(pkg, "cmd") && !within(pkg, "bench"):
		return "only cmd imports lab and bench"
	case isLeaf(pkg) && isLeaf(target):
		return "a leaf imports its contract and one client library, never another leaf"
	}
	return ""
}

// keyPackages can make a signature. identity will need them for its development
// authority of certificates, the laboratory forges on purpose, and the benchmarks hold
// the bare check of a signature against that of a grant.
var keyPackages = []string{"crypto/ecdsa", "crypto/ed25519", "crypto/hmac", "crypto/rsa"}

func keepsKeys(pkg string) bool {
	return pkg == "grant" || pkg == "identity" || within(pkg, "lab") || within(pkg, "bench")
}

// isLeaf reports whether pkg implements a contract for one back end. A kit is no
// leaf: it compares leaves with the reference.
func isLeaf(pkg string) bool {
	contract, leaf, ok := strings.Cut(pkg, "/")
	return ok && !strings.HasSuffix(leaf, "test") &&
		(contract == "store" || contract == "fence" || contract == "effect")
}

// refuses says why the room may not import something, "" if it may.
func (r room) refuses(imported string) string {
	if target, ours := local(imported); ours {
		if r.open || slices.ContainsFunc(r.ours, func(p string) bool { return covers(p, target) }) {
			return ""
		}
		return fmt.Sprintf("the table has no arrow from %q to %q", r.path, target)
	}
	if isStandard(imported) {
		if r.std == nil || slices.Contains(r.std, imported) {
			return ""
		}
		return fmt.Sprintf("%s may use of the standard library only %s", r.path, strings.Join(r.std, ", "))
	}
	if r.open || slices.ContainsFunc(r.third, func(p string) bool { return within(imported, p) }) {
		return ""
	}
	if len(r.third) == 0 {
		return fmt.Sprintf("%q takes nothing but the standard library from others", r.path)
	}
	return fmt.Sprintf("%q may take from others only %s", r.path, strings.Join(r.third, ", "))
}

func hasPackage(files []file, pkg string) bool {
	return slices.ContainsFunc(files, func(f file) bool { return !f.isTest() && f.pkg() == pkg })
}

func goListDeps(t *testing.T, pkg string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", pkg)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, stderr.String())
	}
	return strings.Fields(string(out))
}
