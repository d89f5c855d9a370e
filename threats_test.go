package lastword_test

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The page of threats names, for each of them, files that are there and of which one
// names the threat; and it leaves none out.
func TestEveryThreatOfThePageHasATestThatNamesIt(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("docs/threats.md")
	if err != nil {
		t.Fatal(err)
	}
	number := regexp.MustCompile(`T(\d+)(?:–T(\d+))?`)
	covered := map[int]bool{}
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if !strings.HasPrefix(line, "| T") || len(cells) != 4 {
			continue
		}
		var texts []string
		for _, file := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[3], -1) {
			info, err := os.Stat(file[1])
			if err != nil {
				t.Errorf("%s: %v", strings.TrimSpace(cells[0]), err)
				continue
			}
			if info.Mode().IsRegular() {
				b, err := os.ReadFile(file[1])
				if err != nil {
					t.Fatal(err)
				}
				texts = append(texts, string(b))
			}
		}
		for _, m := range number.FindAllStringSubmatch(cells[0], -1) {
			first, _ := strconv.Atoi(m[1])
			last := first
			if m[2] != "" {
				last, _ = strconv.Atoi(m[2])
			}
			for n := first; n <= last; n++ {
				covered[n] = true
				if !namesThreat(texts, n) {
					t.Errorf("T%d: no file of its line names it", n)
				}
			}
		}
	}
	for n := 1; n <= 31; n++ {
		// T15 is not defended, as the page says, and T28 is the console's.
		if want := n != 15 && n != 28; covered[n] != want {
			t.Errorf("T%d has a line: %v, want %v", n, covered[n], want)
		}
	}
}

func namesThreat(texts []string, n int) bool {
	for _, text := range texts {
		for _, m := range regexp.MustCompile(`T(\d+)(?: to T(\d+))?`).FindAllStringSubmatch(text, -1) {
			first, _ := strconv.Atoi(m[1])
			last := first
			if m[2] != "" {
				last, _ = strconv.Atoi(m[2])
			}
			if first <= n && n <= last {
				return true
			}
		}
	}
	return false
}
