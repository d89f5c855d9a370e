package memfence

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
)

type opKey struct {
	key       fence.Key
	operation string
}

type countKey struct {
	key     fence.Key
	verdict lastword.Verdict
}

// state is all that a place holds.
type state struct {
	records    map[fence.Key]fence.Record
	receipts   map[opKey]lastword.Receipt
	tombstones map[opKey]bool
	refusals   map[countKey]uint64
	quarantine map[fence.Key][]fence.Evidence // slices are replaced, never changed
	values     map[string]string
	// marked has the resources with a receipt or a tombstone.
	marked map[fence.Key]bool
	// acts are what operators did, restored the marks of domains (R20).
	acts     map[fence.Key][]fence.Act // slices are replaced, never changed
	restored map[string]uint64
	jumped   map[fence.Key]lastword.Token // fences that were refused with FENCE_JUMP last
	// bundles are the newest ones that were brought here, by domain (R13).
	bundles map[string]fence.BundleFloor
	// shadow has the resources whose roll-out goes on (R18); false: it has ended.
	shadow map[fence.Key]bool
}

func newState() *state {
	return &state{
		records: map[fence.Key]fence.Record{}, receipts: map[opKey]lastword.Receipt{},
		tombstones: map[opKey]bool{}, refusals: map[countKey]uint64{},
		quarantine: map[fence.Key][]fence.Evidence{}, values: map[string]string{},
		marked: map[fence.Key]bool{},
		acts:   map[fence.Key][]fence.Act{}, restored: map[string]uint64{}, shadow: map[fence.Key]bool{},
		bundles: map[string]fence.BundleFloor{}, jumped: map[fence.Key]lastword.Token{},
	}
}

func (s *state) clone() *state {
	return &state{
		records: maps.Clone(s.records), receipts: maps.Clone(s.receipts),
		tombstones: maps.Clone(s.tombstones), refusals: maps.Clone(s.refusals),
		quarantine: maps.Clone(s.quarantine), values: maps.Clone(s.values),
		marked: maps.Clone(s.marked),
		acts:   maps.Clone(s.acts), restored: maps.Clone(s.restored), shadow: maps.Clone(s.shadow),
		bundles: maps.Clone(s.bundles), jumped: maps.Clone(s.jumped),
	}
}

// add puts the changes of a transaction into s.
func (s *state) add(changes *state) {
	maps.Copy(s.records, changes.records)
	maps.Copy(s.receipts, changes.receipts)
	maps.Copy(s.values, changes.values)
	maps.Copy(s.marked, changes.marked)
	maps.Copy(s.acts, changes.acts)
	maps.Copy(s.restored, changes.restored)
	maps.Copy(s.shadow, changes.shadow)
}

// read looks at a transaction's changes first.
func read[K comparable, V any](changes, committed map[K]V, k K) (V, bool) {
	if v, found := changes[k]; found {
		return v, true
	}
	v, found := committed[k]
	return v, found
}

func (s *state) count(key fence.Key, v lastword.Verdict) { s.refusals[countKey{key, v}]++ }

// actsAt are the newest acts at a record and at the whole place.
func (s *state) actsAt(key fence.Key) []fence.Act {
	all := slices.Concat(s.acts[fence.Key{Domain: key.Domain}], s.acts[key])
	slices.SortStableFunc(all, func(a, b fence.Act) int { return a.At.Compare(b.At) })
	return all[max(0, len(all)-fence.MaxActs):]
}

func (s *state) text() string {
	var lines []string
	add := func(kind string, key, value any) {
		lines = append(lines, fmt.Sprintf("%s %+q %+v\n", kind, key, value))
	}
	for k, v := range s.records {
		add("record", k, v)
	}
	for k, v := range s.receipts {
		add("receipt", k, v)
	}
	for k, v := range s.tombstones {
		add("tombstone", k, v)
	}
	for k, v := range s.refusals {
		add("refusals", k, v)
	}
	for k, q := range s.quarantine {
		for i, e := range q {
			add("quarantine", k, fmt.Sprintf("%d %+v %+v", i, e, *e.Quarantine))
		}
	}
	for k, v := range s.acts {
		add("acts", k, v)
	}
	for k, v := range s.restored {
		add("restored", k, v)
	}
	for k, v := range s.shadow {
		add("shadow", k, v)
	}
	for k, v := range s.values {
		add("value", k, fmt.Sprintf("%q", v))
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// copyReceipt keeps a stored result out of a caller's hands.
func copyReceipt(r lastword.Receipt) lastword.Receipt {
	r.Result = bytes.Clone(r.Result)
	return r
}
