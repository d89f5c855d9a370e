package lastword_test

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// fencedBlocks are the blocks of a page in the given language.
func fencedBlocks(page, language string) (blocks []string) {
	for _, part := range strings.Split("\n"+page, "\n```"+language+"\n")[1:] {
		block, _, _ := strings.Cut(part, "\n```")
		blocks = append(blocks, block+"\n")
	}
	return blocks
}

// What the README shows compiles and runs, because it is the end of the example.
func TestTheReadmeShowsTheProgramOfTheExample(t *testing.T) {
	t.Parallel()
	blocks := fencedBlocks(read(t, "README.md"), "go")
	if len(blocks) != 1 {
		t.Fatalf("README.md has %d Go blocks, want 1", len(blocks))
	}
	_, shown, _ := strings.Cut(read(t, "readme_example_test.go"), "word by word.\n\n")
	if shown == "" || blocks[0] != shown {
		t.Errorf("README.md shows\n%s\nand the example is\n%s", blocks[0], shown)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// pages are what people read first.
func pages(t *testing.T) []string {
	t.Helper()
	found := []string{"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"}
	for _, pattern := range []string{"docs/*.md", "docs/*/*.md"} {
		more, err := filepath.Glob(pattern)
		if err != nil || len(more) == 0 {
			t.Fatalf("%s: %v, %v", pattern, more, err)
		}
		found = append(found, more...)
	}
	return found
}

var (
	linked = regexp.MustCompile(`\]\(([^)#\s]+)(?:#[^)]*)?\)`)
	ticked = regexp.MustCompile("`([^`\n]+)`")
	// aPath is a word of names with slashes between them, or a file by its ending.
	aPath = regexp.MustCompile(`^\.?[\w.-]+(/[\w.-]+)*/?$`)
	aFile = regexp.MustCompile(`\.(go|md|proto|json|yml|yaml|mod|sum|txtar)$`)
)

// missingPaths are the paths that a page names and the tree has not: links, and what
// stands in backquotes and ends as a file does or begins with a directory of the tree.
func missingPaths(page, text string) (missing []string) {
	for _, m := range linked.FindAllStringSubmatch(text, -1) {
		if !strings.Contains(m[1], "://") && !exists(path.Join(path.Dir(page), m[1])) {
			missing = append(missing, m[1])
		}
	}
	for _, m := range ticked.FindAllStringSubmatch(text, -1) {
		name := m[1]
		if !aPath.MatchString(name) {
			continue
		}
		first, rest, nested := strings.Cut(name, "/")
		ofTree := nested && rest != "" && first != "bin" && exists(first) // bin is built
		if (aFile.MatchString(name) || ofTree) && !exists(name) && !exists(path.Join(path.Dir(page), name)) {
			missing = append(missing, name)
		}
	}
	return missing
}

func TestPathsThatThePagesNameAreThere(t *testing.T) {
	t.Parallel()
	for _, page := range pages(t) {
		for _, name := range missingPaths(page, read(t, page)) {
			t.Errorf("%s names %s, which is not there", page, name)
		}
	}
}

func TestAPathThatIsNotThereIsFound(t *testing.T) {
	t.Parallel()
	text := "`authority/nothing.go`, `nothing.go`, [a link](docs/nothing.md#part), `store/nothing`; " +
		"`authority/loop.go`, `docs/`, [cli](docs/cli.md), `fence.Place`, `doc/a`, `acquire`, [a site](https://go.dev/dl/)"
	if got := strings.Join(missingPaths("README.md", text), " "); got != "docs/nothing.md authority/nothing.go nothing.go store/nothing" {
		t.Errorf("missing: %s", got)
	}
}
