package simulate

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"testing"
)

func TestScratch(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("ROUNDS"))
	seed, _ := strconv.ParseUint(os.Getenv("SEED"), 10, 64)
	if os.Getenv("ALL") != "" {
		storyLines = 400
	}
	debugHand = os.Getenv("HAND") != ""
	if n == 0 {
		t.Skip()
	}
	r, err := Run(t.Context(), Options{Rounds: n, Seed: seed, Unsigned: os.Getenv("SIGNED") == "", Variant: os.Getenv("VARIANT"), Timelines: -1, Replay: os.Getenv("REPLAY")})
	if err != nil {
		t.Fatal(err)
	}
	b, _ := json.MarshalIndent(r.Counters, "", " ")
	fmt.Println(string(b), r.TraceHash, r.Took)
	fmt.Println(kindCount)
	for _, g := range r.Gates {
		if !g.Holds {
			fmt.Println("GATE", g)
		}
	}
	if os.Getenv("FAULTS") != "" {
		for _, f := range r.Faults {
			fmt.Printf("%6d %6d %s\n", f.Fired, f.Effect, f.Name)
		}
	}
	if f := r.Failure; f != nil {
		fmt.Println("FAILURE", f.Kind, f.Detail, f.Command)
		for _, p := range f.Plan {
			fmt.Println("   ", p)
		}
		for _, e := range f.Events {
			fmt.Printf("  %12v %-20s %s\n", e.At, e.Actor, e.Text)
		}
	}
}

func TestShow(t *testing.T) {
	if os.Getenv("WORLD") == "" {
		t.Skip()
	}
	n, _ := strconv.Atoi(os.Getenv("WORLD"))
	round, _ := strconv.Atoi(os.Getenv("ROUND"))
	seed, _ := strconv.ParseUint(os.Getenv("SEED"), 10, 64)
	r, err := newRun(Options{Seed: seed, Unsigned: os.Getenv("SIGNED") == "", Variant: os.Getenv("VARIANT")})
	if err != nil {
		t.Fatal(err)
	}
	w := r.rerun(n, nil, nil, true)
	for _, e := range w.story(round, 1<<20) {
		fmt.Printf("  %12v %-20s %s\n", e.At, e.Actor, e.Text)
	}
}
