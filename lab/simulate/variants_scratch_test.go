package simulate

import (
	"fmt"
	"os"
	"testing"

	"github.com/lastword/lastword/model"
)

func TestVariantsScratch(t *testing.T) {
	if os.Getenv("ALLV") == "" {
		t.Skip()
	}
	for _, v := range model.Variants() {
		if only := os.Getenv("V"); only != "" && only != v.Name {
			continue
		}
		r, err := Run(t.Context(), Options{Rounds: 60000, Seed: 1, Unsigned: true, Variant: v.Name, Timelines: -1})
		if err != nil {
			t.Fatal(err)
		}
		got := "-- NOT FOUND"
		if f := r.Failure; f != nil {
			got = f.Kind
			if got != v.Property {
				got = "?? " + got + " want " + v.Property
			}
			got += fmt.Sprintf(" plan %d events %d world %d", len(f.Plan), len(f.Events), f.World)
		}
		fmt.Printf("%-42s %8.2fs %s\n", v.Name, r.Took.Seconds(), got)
	}
}
