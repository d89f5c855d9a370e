package soak

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/lab/history"
	"github.com/lastword/lastword/store"
	"github.com/lastword/lastword/store/sqlstore"
)

// findings are what the verifier found in what was written down.
type findings struct {
	protected, checked int
	unknownMet         int // calls that nobody heard the end of
	unknownOpen        int // of which nobody can say what became
	operations         int // that porcupine looked at
	resources          int
	calls              int
	byVerdict          map[string]int
	linearizableIn     time.Duration
}

// callKey tells a call apart from every other one of its list.
type callKey struct {
	process int
	who     string
	serial  int
}

func keyOf(c Call) callKey { return callKey{c.Process, c.Who, c.Serial} }

// whole are the calls of one list, each once: with its answer, if there was one.
func whole(calls []Call) []Call {
	at := map[callKey]int{}
	var all []Call
	for _, c := range calls {
		k := keyOf(c)
		if i, ok := at[k]; ok {
			all[i] = c
			continue
		}
		at[k] = len(all)
		all = append(all, c)
	}
	return all
}

// check looks through everything: the history, the authority's store, the receipts and
// the business rows.
func (r *run) check(ctx context.Context) (f findings, err error) {
	f.byVerdict = map[string]int{}
	var facts []history.Fact
	calls := map[*cell][]Call{}
	for _, c := range r.cells {
		if c == nil {
			continue
		}
		calls[c] = c.calls
		for _, call := range calls[c] {
			f.calls++
			if call.Op == opWrite && !call.Open {
				f.byVerdict[call.Verdict]++
			}
			facts = append(facts, factOf(call)...)
		}
	}
	for _, call := range whole(r.probed) {
		facts = append(facts, factOf(call)...)
	}
	facts = append(facts, r.excuses(facts)...)
	for _, w := range history.Verify(facts) {
		r.broke("history_wrong", w)
	}
	if len(r.keepers) == 0 {
		return f, nil
	}
	granted, err := r.checkStore(ctx, facts)
	if err != nil {
		return f, err
	}
	var checks []check
	for _, c := range r.cells {
		if c == nil {
			continue
		}
		rows, err := readRows(ctx, c.path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return f, err
		}
		r.checkRows(c, rows, calls[c], granted, &f)
		checks = append(checks, r.histories(c, calls[c], rows, granted)...)
	}
	r.checkLinearizable(checks, &f)
	return f, nil
}

// factOf is a call as package history looks at it. What it does not know it is not given.
func factOf(c Call) []history.Fact {
	switch c.Op {
	case opWrite, opRead, opAdvance:
		return nil
	}
	f := c.Fact
	if c.Open {
		f.Code, f.Heard = lastword.CodeUnknown, math.MaxInt64
	}
	return []history.Fact{f}
}

// excuses are the ends of tenures that the revocation of a key may have brought: whoever
// held one then was told so by nobody.
func (r *run) excuses(facts []history.Fact) (more []history.Fact) {
	for _, t := range r.turned {
		if t.kind != revokeKey {
			continue
		}
		seen := map[[3]string]bool{}
		for _, f := range facts {
			k := [3]string{string(f.Resource), f.Owner, f.RequestID}
			if f.Held() && f.Sent-sweeping < t.ended && !seen[k] {
				seen[k] = true
				more = append(more, history.Fact{Op: opRevoke, Resource: f.Resource, Owner: f.Owner, RequestID: f.RequestID, Sent: t.began, Heard: t.ended})
			}
		}
	}
	return more
}

// sweeping is how long after the revocation of a key tenures may be ended for it.
const sweeping = 3 * time.Second

// attempt names one acquire attempt.
type attempt struct {
	resource         lastword.Resource
	owner, requestID string
}

func attemptOf(c Call) attempt { return attempt{c.Resource, c.Owner, c.RequestID} }

// grantedAs are the tenures that the stores know, by attempt.
type grantedAs map[attempt]*store.Request

// checkStore compares what was acknowledged with what the stores kept, and looks up what
// became of each attempt.
func (r *run) checkStore(ctx context.Context, facts []history.Fact) (grantedAs, error) {
	granted := grantedAs{}
	for i, k := range r.keepers {
		s, err := sqlstore.Open(ctx, k.store(), sqlstore.Config{})
		if err != nil {
			return nil, err
		}
		mine := facts
		if len(r.keepers) > 1 { // each side asks its own
			mine = slices.DeleteFunc(slices.Clone(facts), func(f history.Fact) bool {
				return i == 0 && r.sideOf(f.Owner) == 1 || i == 1 && r.sideOf(f.Owner) == 0
			})
		}
		wrong, err := history.VerifyStore(ctx, mine, s)
		for _, w := range wrong {
			r.broke("store_wrong", w)
		}
		if err == nil {
			err = lookUp(ctx, s, mine, granted)
		}
		if err := errors.Join(err, s.Close()); err != nil {
			return nil, err
		}
	}
	return granted, nil
}

// sideOf is 0 for the workers of the first authority, 1 for those of the second.
func (r *run) sideOf(owner string) int {
	if owner != "" && owner[len(owner)-1] == 'b' {
		return 1
	}
	return 0
}

func lookUp(ctx context.Context, s store.Store, facts []history.Fact, granted grantedAs) error {
	for _, f := range facts {
		a := attempt{f.Resource, f.Owner, f.RequestID}
		if _, known := granted[a]; known || f.Op != "acquire" {
			continue
		}
		v, err := s.Read(ctx, store.Query{Resource: f.Resource, Owner: f.Owner, RequestID: f.RequestID})
		if err != nil {
			return err
		}
		granted[a] = v.Entries[0].Request
	}
	return nil
}

// rows are what a business database has at the end.
type rows struct {
	effects   []effectRow
	receipts  map[operation]receiptRow
	documents map[lastword.Resource]string
}

type operation struct {
	resource lastword.Resource
	id       string
}

type effectRow struct {
	n     int64
	of    operation
	fence lastword.Token
	owner string
	value string
}

type receiptRow struct {
	fence lastword.Token
	seq   uint64
	lease string
	owner string
}

func readRows(ctx context.Context, path string) (r rows, err error) {
	if _, err := os.Stat(path); err != nil {
		return r, err
	}
	db, err := openBusiness(path)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	r.receipts, r.documents = map[operation]receiptRow{}, map[lastword.Resource]string{}
	each := func(query string, take func(scan func(...any) error) error) error {
		found, err := db.QueryContext(ctx, query)
		if err != nil {
			return err
		}
		defer found.Close()
		for found.Next() {
			if err := take(found.Scan); err != nil {
				return err
			}
		}
		return found.Err()
	}
	err = each(`SELECT n, resource, operation, fence, owner, value FROM effect ORDER BY n`, func(scan func(...any) error) error {
		var e effectRow
		err := scan(&e.n, &e.of.resource, &e.of.id, &e.fence, &e.owner, &e.value)
		r.effects = append(r.effects, e)
		return err
	})
	if err == nil {
		err = each(`SELECT resource, operation, fence, seq, lease_id, owner FROM lastword_receipt`, func(scan func(...any) error) error {
			var of operation
			var w receiptRow
			err := scan(&of.resource, &of.id, &w.fence, &w.seq, &w.lease, &w.owner)
			r.receipts[of] = w
			return err
		})
	}
	if err == nil {
		err = each(`SELECT id, value FROM document`, func(scan func(...any) error) error {
			var id, value string
			err := scan(&id, &value)
			r.documents[lastword.Resource(id)] = value
			return err
		})
	}
	return r, err
}

// checkRows compares receipts, business rows and what was answered.
func (r *run) checkRows(c *cell, w rows, calls []Call, granted grantedAs, f *findings) {
	leases := map[string]*store.Request{}
	for _, g := range granted {
		if g != nil && g.LeaseID != "" {
			leases[g.LeaseID] = g
		}
	}
	highest := map[lastword.Resource]effectRow{}
	last := map[lastword.Resource]string{}
	times := map[operation]int{}
	for _, e := range w.effects {
		f.protected++
		if before := highest[e.of.resource]; e.fence < before.fence {
			r.broke("stale_accepted", fmt.Sprintf("%s: %s wrote %q with fence %d after %s had written %q with fence %d",
				e.of.resource, e.owner, e.value, e.fence, before.owner, before.value, before.fence))
		} else {
			highest[e.of.resource] = e
		}
		last[e.of.resource] = e.value
		if times[e.of]++; times[e.of] > 1 {
			r.broke("effect_twice", fmt.Sprintf("%s: operation %s had its effect %d times", e.of.resource, e.of.id, times[e.of]))
		}
		receipt, ok := w.receipts[e.of]
		lease := leases[receipt.lease]
		if ok && receipt.fence == e.fence && receipt.owner == e.owner && lease != nil && lease.Fence == e.fence {
			f.checked++
		}
	}
	for of, receipt := range w.receipts {
		if times[of] == 0 {
			r.broke("receipt_without_effect", fmt.Sprintf("%s: operation %s has a receipt with fence %d and no effect", of.resource, of.id, receipt.fence))
		}
	}
	for resource, value := range w.documents {
		if value != last[resource] {
			r.broke("document_differs", fmt.Sprintf("%s: the document says %q, the last effect %q", resource, value, last[resource]))
		}
	}
	r.checkSequences(w)
	r.checkAnswers(c, w, calls, granted, f)
}

// checkSequences: the numbers of a tenure's writes are 1, 2, 3, … with none left out.
func (r *run) checkSequences(w rows) {
	type tenure struct {
		resource lastword.Resource
		fence    lastword.Token
	}
	seqs := map[tenure][]uint64{}
	for of, receipt := range w.receipts {
		t := tenure{of.resource, receipt.fence}
		seqs[t] = append(seqs[t], receipt.seq)
	}
	for t, s := range seqs {
		slices.Sort(s)
		for i, seq := range s {
			if seq != uint64(i)+1 {
				r.broke("segment_jumps_accepted", fmt.Sprintf("%s: fence %d has the numbers %v", t.resource, t.fence, s))
				break
			}
		}
	}
}

// checkAnswers: what was acknowledged is there, and what nobody heard the end of can be
// told by now.
func (r *run) checkAnswers(c *cell, w rows, calls []Call, granted grantedAs, f *findings) {
	for _, call := range calls {
		of := operation{call.Resource, call.Operation}
		receipt, found := w.receipts[of]
		switch {
		case call.Op == "acquire" && unheard(call):
			f.unknownMet++ // the store has been asked
		case call.Op == opWrite && unheard(call):
			f.unknownMet++
			if !found && !c.settledEra(call.Resource) {
				f.unknownOpen++
				r.fail("unknown_open", fmt.Sprintf("%s: nobody can say what became of %s", call.Resource, call.Operation))
			}
		case call.Op == opWrite && (call.Verdict == string(lastword.Applied) || call.Verdict == string(lastword.Replayed)):
			if !found || receipt.fence != call.Fence && call.Verdict == string(lastword.Applied) {
				r.broke("acknowledged_lost", fmt.Sprintf("%s: %s was %s with fence %d, and its receipt is %+v", call.Resource, call.Operation, call.Verdict, call.Fence, receipt))
			}
		}
	}
}

// unheard reports whether nobody heard the end of a call.
func unheard(c Call) bool {
	return c.Open || c.Code == lastword.CodeUnknown || c.Code == lastword.CodeMutationUnknown
}

// byTime orders calls as they were sent.
func byTime(a, b Call) int { return cmp.Compare(a.Sent, b.Sent) }
