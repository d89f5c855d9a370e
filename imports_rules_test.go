package lastword_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
)

// tree builds a source tree out of "file: import import …" lines.
func tree(lines ...string) fstest.MapFS {
	root := fstest.MapFS{}
	for _, line := range lines {
		name, imports, _ := strings.Cut(line, ": ")
		src := "package p\n"
		for imported := range strings.FieldsSeq(imports) {
			imported = strings.Replace(imported, "~", module, 1)
			src += fmt.Sprintf("import _ %q\n", imported)
		}
		root[name] = &fstest.MapFile{Data: []byte(src)}
	}
	return root
}

func violations(t *testing.T, root fstest.MapFS) []string {
	t.Helper()
	files, err := parseImports(root)
	if err != nil {
		t.Fatal(err)
	}
	return checkImports(files, rooms)
}

// A check that has never failed proves nothing: one tree for each way to cross
// an arrow. "~" is the module.
func TestImportCheckerRejects(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, file, want string }{
		{"a leaf that imports another leaf", "store/sqlstore/a.go: ~/store/memstore", "never another leaf"},
		{"a leaf of one contract that imports a leaf of another", "fence/sqlfence/a.go: ~/store/sqlstore", "never another leaf"},
		{"an adapter that borrows a neighbour", "fence/pgxfence/a.go: ~/fence/sqlfence", "never another leaf"},
		{"production code that imports testing", "authority/a.go: testing", "may import testing"},
		{"production code that imports below testing", "cmd/lastword/a.go: testing/fstest", "may import testing"},
		{"a server that imports the laboratory", "server/a.go: ~/lab", "only cmd imports lab and bench"},
		{"a server that imports a part of the laboratory", "server/a.go: ~/lab/history", "only cmd imports lab and bench"},
		{"a server that imports the benchmarks", "server/a.go: ~/bench", "only cmd imports lab and bench"},
		{"rules that import the simulator", "model/a.go: ~/lab/simulate", "only cmd imports lab and bench"},
		{"an example that imports the laboratory", "examples/a/a.go: ~/lab", "only cmd imports lab and bench"},
		{"a laboratory that imports the benchmarks", "lab/a.go: ~/bench", "only cmd imports lab and bench"},
		{"a laboratory that imports the command", "lab/a.go: ~/cmd/lastword", "nothing imports cmd"},
		{"rules that read a clock", "internal/core/a.go: time", "only cmp, embed"},
		{"rules that know a context", "internal/core/a.go: context", "only cmp, embed"},
		{"rules that lock", "internal/core/a.go: sync", "only cmp, embed"},
		{"rules that draw random numbers", "internal/core/a.go: math/rand/v2", "only cmp, embed"},
		{"rules that import a contract", "internal/core/a.go: ~/store", "no arrow"},
		{"words that import a room", "a.go: ~/grant", "no arrow"},
		{"words that import a third party", "a.go: github.com/go-jose/go-jose/v4", "nothing but the standard library"},
		{"a contract that imports its user", "store/a.go: ~/authority", "no arrow"},
		{"a holder that imports the authority", "client/a.go: ~/authority", "no arrow"},
		{"a fence that imports the authority", "fence/a.go: ~/authority", "no arrow"},
		{"a fence that imports the wire", "fence/a.go: ~/rpc", "no arrow"},
		{"a wire that imports the authority", "rpc/a.go: ~/authority", "no arrow"},
		{"an adapter that chooses the driver", "fence/sqlfence/a.go: modernc.org/sqlite", "nothing but the standard library"},
		{"a store that chooses the driver", "store/sqlstore/a.go: modernc.org/sqlite", "nothing but the standard library"},
		{"a seal with a second library", "grant/a.go: github.com/golang-jwt/jwt/v5", "may take from others only"},
		{"a library whose path only begins alike", "grant/a.go: github.com/go-jose/go-jose/v4x", "may take from others only"},
		{"a holder that takes the transport", "client/a.go: google.golang.org/grpc", "may take from others only"},
		{"keys outside the seal", "authority/a.go: crypto/ed25519", "nobody but grant touches keys"},
		{"C", "cmd/lastword/a.go: C", "CGO_ENABLED=0"},
		{"a file behind a build constraint counts too", "client/a_darwin.go: ~/authority", "no arrow"},
		{"a room that is not in the table", "util/a.go: fmt", "add a line for it to rooms in imports_test.go"},
		{"a leaf that is not in the table", "store/boltstore/a.go: ~/store", "add a line for it to rooms in imports_test.go"},
		{"a room below a room", "internal/core/sub/a.go: fmt", "add a line for it to rooms in imports_test.go"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := violations(t, tree(c.file))
			if len(got) != 1 || !strings.Contains(got[0], c.want) {
				t.Errorf("%s:\ngot  %q\nwant one sentence with %q", c.file, got, c.want)
			}
		})
	}
}

func TestImportCheckerAdmits(t *testing.T) {
	t.Parallel()
	got := violations(t, tree(
		"a.go: fmt crypto/sha256 time",
		"a_test.go: ~/authority ~/lab testing github.com/anybody/anything",
		"internal/core/a.go: ~ cmp embed errors fmt iter maps math math/bits slices strconv strings",
		"internal/core/a_test.go: testing time pgregory.net/rapid",
		"grant/a.go: ~ crypto/ed25519 github.com/go-jose/go-jose/v4/jwt",
		"store/a.go: ~ ~/internal/core context",
		"store/sqlstore/a.go: ~ ~/store ~/internal/sqldb database/sql",
		"store/storetest/a.go: testing ~/store/memstore ~/authority ~/internal/core",
		"fence/fencetest/a.go: testing/synctest ~/fence/memfence",
		"client/a.go: golang.org/x/sys/unix ~/internal/core",
		"rpc/a.go: google.golang.org/grpc/codes google.golang.org/genproto/googleapis/rpc/errdetails ~/rpc/lastwordv1",
		"rpc/lastwordv1/a.pb.go: google.golang.org/protobuf/reflect/protoreflect",
		"server/a.go: ~/store/sqlstore modernc.org/sqlite ~/rpc",
		"lab/a.go: ~/fence/sqlfence ~/lab/history",
		"lab/simulate/a.go: ~/internal/core ~/model ~/grant ~/fence/memfence",
		"cmd/lastword/a.go: ~/lab ~/bench ~/server github.com/spf13/cobra",
		"internal/tools/go.mod",
		"internal/tools/a.go: ~/lab testing",
		"internal/core/testdata/a.go: time",
		".hidden/a.go: time",
		"_draft/a.go: time",
	))
	for _, v := range got {
		t.Error(v)
	}
}

func TestUnknownPackageIsNamedOnce(t *testing.T) {
	t.Parallel()
	got := violations(t, tree("util/a.go: fmt", "util/b.go: fmt"))
	if len(got) != 1 {
		t.Errorf("got %d sentences, want 1: %q", len(got), got)
	}
}

func TestImportCheckerRefusesAFileItCannotParse(t *testing.T) {
	t.Parallel()
	root := fstest.MapFS{"a.go": {Data: []byte("package")}}
	if _, err := parseImports(root); err == nil {
		t.Error("a file that does not parse was passed over")
	}
}

// TestTableHasNoDoubleLines: the first line that covers a package decides, so a
// second one would be dead.
func TestTableHasNoDoubleLines(t *testing.T) {
	t.Parallel()
	for i, r := range rooms {
		pkg := strings.TrimSuffix(r.path, "/...")
		for _, other := range rooms[i+1:] {
			if covers(other.path, pkg) || covers(r.path, strings.TrimSuffix(other.path, "/...")) {
				t.Errorf("rooms %q and %q cover one package", r.path, other.path)
			}
		}
	}
}
