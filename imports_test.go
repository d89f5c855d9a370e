package lastword_test

import (
	"os"
	"testing"
)

const module = "github.com/lastword/lastword"

// The one library that a process which guards its own database has to take: the
// JOSE library under grant.
const jose = "github.com/go-jose/go-jose/v4"

// room is one line of the import table: what a package may import beside the
// standard library. Paths are relative to the module; "" is the root and a
// trailing "/..." stands for the package and everything below it.
type room struct {
	path  string
	ours  []string // packages of this module
	third []string // modules (or path prefixes) of others
	std   []string // the allowed standard library; nil allows all of it
	open  bool     // may import anything of ours and any third party, within the rules that hold for everybody
}

// rooms is the arrow of imports as data. Do not change it to fix a build: a new
// arrow is a decision (docs/decisions), a new leaf is a new line.
//
// Nothing of the standard library is forbidden by a missing std: rules that hold
// for every room (leaves, testing, cmd, lab, bench, keys) are in
// imports_checker_test.go.
var rooms = []room{
	// Words and rules.
	{path: ""},
	{
		path: "internal/core", ours: []string{""},
		std: []string{
			"cmp", "embed", "errors", "fmt", "iter", "maps", "math", "math/bits",
			"slices", "strconv", "strings",
		},
	},
	{path: "internal/sqldb", ours: []string{""}},
	{path: "grant", ours: []string{""}, third: []string{jose}},
	{path: "identity", ours: []string{""}, third: []string{"github.com/spiffe/go-spiffe/v2", "go.yaml.in/yaml/v3"}},

	// Servers of others, for tests and benchmarks.
	{path: "internal/realservers"},
	{path: "internal/sqlmutants", std: []string{"fmt", "regexp", "strings"}},
	{path: "internal/postgrestest", ours: []string{"internal/realservers"}, third: []string{"github.com/jackc/pgx/v5"}},

	{path: "internal/grantfile", ours: []string{"", "grant"}},
	// What operators do, in a file.
	{path: "internal/auditlog", ours: []string{""}},
	// Observers are told by it, so that none of them can hold anybody up.
	{path: "internal/outbox", std: []string{"context", "sync"}},
	{path: "internal/signals"},
	{path: "internal/early", ours: []string{"internal/signals"}}, // cmd/lastword alone: it catches signals

	// Issuing side. store's Record is core's (decision 0002).
	{path: "store", ours: []string{"", "internal/core"}},
	{path: "authority", ours: []string{"", "grant", "internal/core", "internal/outbox", "store"}},
	{path: "store/memstore", ours: []string{"", "store"}},
	{path: "store/sqlstore", ours: []string{"", "store", "internal/sqldb"}}, // the caller brings the driver
	{path: "store/etcdstore", ours: []string{"", "store"}, third: []string{"go.etcd.io/etcd/client/v3", "go.etcd.io/etcd/api/v3"}},
	{path: "store/redisstore", ours: []string{"", "store"}, third: []string{"github.com/redis/go-redis/v9"}},
	{path: "store/zkstore", ours: []string{"", "store"}, third: []string{"github.com/go-zookeeper/zk"}},
	{path: "store/storetest", ours: []string{"", "grant", "store", "authority", "store/memstore", "internal/core"}},

	// Resource side.
	{path: "fence", ours: []string{"", "grant", "internal/core"}},
	{path: "fence/memfence", ours: []string{"", "grant", "fence"}},
	// Tables, statements and codec of the SQL adapters (decision 0013).
	{path: "internal/fencesql", ours: []string{"", "fence", "internal/protect", "internal/sqldb"}},
	// Triggers of protected tables, and the list of them.
	{path: "internal/protect", ours: []string{"", "internal/sqldb"}},
	{path: "fence/sqlfence", ours: []string{"", "grant", "fence", "internal/fencesql", "internal/protect", "internal/sqldb"}}, // the caller brings the driver
	{path: "fence/pgxfence", ours: []string{"", "grant", "fence", "internal/fencesql", "internal/protect", "internal/sqldb"}, third: []string{"github.com/jackc/pgx/v5"}},
	{path: "fence/blobfence", ours: []string{"", "grant", "fence"}},
	{path: "fence/redisfence", ours: []string{"", "grant", "fence"}, third: []string{"github.com/redis/go-redis/v9"}},
	{path: "fence/etcdfence", ours: []string{"", "grant", "fence"}, third: []string{"go.etcd.io/etcd/client/v3", "go.etcd.io/etcd/api/v3"}},
	{path: "fence/zkfence", ours: []string{"", "grant", "fence"}, third: []string{"github.com/go-zookeeper/zk"}},
	{path: "fence/httpfence", ours: []string{"", "grant", "fence"}},
	{path: "fence/fencetest", ours: []string{"", "grant", "fence", "fence/memfence", "internal/core"}},
	{path: "effect", ours: []string{"", "fence", "internal/core"}},
	{path: "effect/sqleffect", ours: []string{"", "effect", "fence", "internal/sqldb"}},

	// Holder.
	{path: "client", ours: []string{"", "grant", "internal/core", "internal/outbox"}, third: []string{"golang.org/x/sys"}},
	// A process group is watched with system calls that package syscall lacks.
	{path: "guard", ours: []string{"", "client", "internal/grantfile", "internal/signals"}, third: []string{"golang.org/x/sys"}},

	// Wire and what stands around it.
	{
		path: "rpc/...", ours: []string{"", "grant", "identity", "rpc/..."},
		third: []string{
			"google.golang.org/grpc", "google.golang.org/protobuf", "google.golang.org/genproto",
			"github.com/grpc-ecosystem/grpc-gateway/v2",
		},
	},
	{
		path: "observe", ours: []string{"", "authority", "fence", "client", "effect"},
		third: []string{"github.com/prometheus", "go.opentelemetry.io/otel"},
	},
	{path: "console", ours: []string{"", "rpc/...", "fence", "effect"}},
	{path: "model", ours: []string{"", "internal/core"}},
	{path: "server/...", open: true},

	// Programs and experiments.
	{path: "lab/...", open: true},
	{path: "bench/...", open: true},
	{path: "cmd/...", open: true},
	{path: "examples/...", open: true},
}

// TestImportsFollowTheTable parses every file of the module inside the test
// process, so that a result from the test cache is never older than the code.
func TestImportsFollowTheTable(t *testing.T) {
	t.Parallel()
	files, err := parseImports(os.DirFS("."))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("no Go file found; this test must run in the root of the module")
	}
	for _, v := range checkImports(files, rooms) {
		t.Error(v)
	}
}

// TestGuardedDatabaseNeedsOneLibrary: a process that guards its own database
// compiles the standard library, this module and the JOSE library, nothing else.
func TestGuardedDatabaseNeedsOneLibrary(t *testing.T) {
	t.Parallel()
	// Parsing first has a second purpose: it makes the test cache depend on every
	// Go file of the module, which a child process does not.
	files, err := parseImports(os.DirFS("."))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		if _, err := os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	for _, pkg := range []string{"", "fence", "fence/sqlfence"} {
		if !hasPackage(files, pkg) {
			if pkg == "" {
				t.Fatal("the root package was not found")
			}
			continue // the room is not built yet
		}
		for _, dep := range goListDeps(t, "./"+pkg) {
			if !isStandard(dep) && !within(dep, module) && !within(dep, jose) {
				t.Errorf("./%s depends on %s: root, fence and fence/sqlfence may need no third-party package beyond %s", pkg, dep, jose)
			}
		}
	}
}
