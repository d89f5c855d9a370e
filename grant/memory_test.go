package grant

import (
	"fmt"
	"testing"
)

// T22: the memory keeps what is used and never more than its two halves.
func TestMemoryKeepsWhatIsUsed(t *testing.T) {
	m := newMemory[opened](8)
	used := &opened{}
	m.put("used", used)
	for i := range 100 {
		m.put(fmt.Sprint(i), &opened{})
		if m.get("used") != used {
			t.Fatalf("forgot what was used, after %d others", i+1)
		}
		if n := len(m.young) + len(m.old); n > 8 {
			t.Fatalf("%d grants are kept, want at most 8", n)
		}
	}
	if m.get("0") != nil {
		t.Fatal("nothing is ever forgotten")
	}
	none := newMemory[opened](0)
	none.put("a", used)
	if none.get("a") != nil {
		t.Fatal("a memory of none keeps something")
	}
}
