package fence_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/lastword/lastword/fence"
)

func TestThePageNamesEveryMethodThatAnAdapterOwes(t *testing.T) {
	page, err := os.ReadFile("../docs/adapters.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []reflect.Type{reflect.TypeFor[fence.Tx](), reflect.TypeFor[fence.Place[fence.Tx]](), reflect.TypeFor[fence.Early]()} {
		for method := range of.Methods() {
			if name := method.Name; !strings.Contains(string(page), "`"+name+"(") && !strings.Contains(string(page), "`"+name+"`") {
				t.Errorf("%s of %s is not named", name, of)
			}
		}
	}
}
