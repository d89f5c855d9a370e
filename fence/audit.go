package fence

import (
	"context"
	"fmt"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// Finding is one disagreement that [Audit] has found.
type Finding struct {
	Resource lastword.Resource
	Kind     FindingKind
	// Stored is the highest fence of the record, 0 if there is none; Claimed is the one
	// that somebody else names.
	Stored, Claimed lastword.Token
	// Text says it to a person.
	Text string
}

// FindingKind is a kind of [Finding].
type FindingKind string

// The kinds of findings.
const (
	// FindingAuthorityBehind: the authority's next fence is not above the stored one. It
	// was restored or replaced (R10).
	FindingAuthorityBehind FindingKind = "AUTHORITY_BEHIND"
	// FindingNotReached: a tenure is said to have been completed, and the record holds an
	// older fence, or there is none: its result is not here.
	FindingNotReached FindingKind = "NOT_REACHED"
	// FindingOtherTenure: one fence, two leases.
	FindingOtherTenure FindingKind = "OTHER_TENURE"
	// FindingReceiptMissing: the record's last write has no receipt.
	FindingReceiptMissing FindingKind = "RECEIPT_MISSING"
	// FindingNotCanonical: no lease can be on the record's resource. Somebody else than the
	// fence has written it.
	FindingNotCanonical FindingKind = "NOT_CANONICAL"
	// FindingFrozen: the record is frozen (FENCE_REGRESSION).
	FindingFrozen FindingKind = "FROZEN"
	// FindingUnraised: the place was restored and the record not raised since (R20).
	FindingUnraised FindingKind = "UNRAISED"
)

// Claim says that the work of a tenure at a resource has been done: a row of a task
// table, or a completion at the authority.
type Claim struct {
	Resource lastword.Resource
	Fence    lastword.Token
	By       string // who says so, for people
}

// Authority is what [Audit] asks: the authority's client satisfies it.
type Authority interface {
	StatusSource
	List(ctx context.Context, q lastword.ListQuery) (lastword.Page, error)
}

// Audit compares what the authority knows with each record of a domain at a place, and
// both with claims that somebody else makes. It changes nothing and moves no fence. What
// could be a matter of the moments at which things were read is read again before it is
// told: the authority is asked after the record, and the record is read once more after
// the authority has named a larger fence.
func Audit[T Tx](ctx context.Context, p Place[T], domain string, a Authority, claims []Claim) (all []Finding, checked int, err error) {
	audit := auditing[T]{place: p, domain: domain, seen: map[lastword.Resource]bool{}}
	err = each(ctx, p, domain, func(r lastword.Resource) error {
		checked++
		return audit.record(ctx, a, r)
	})
	if err != nil {
		return nil, 0, err
	}
	q := lastword.ListQuery{Limit: lastword.MaxPage, All: true}
	for { // what is done at the authority, and has never been here
		page, err := a.List(ctx, q)
		if err != nil {
			return nil, 0, err
		}
		for _, st := range page.Resources {
			if !audit.seen[st.Resource] {
				checked++
				if err := audit.completed(ctx, st); err != nil {
					return nil, 0, err
				}
			}
		}
		if q.After = page.Next; q.After == "" {
			break
		}
	}
	for _, c := range claims {
		if err := audit.claim(ctx, c); err != nil {
			return nil, 0, err
		}
	}
	return audit.found, checked, nil
}

type auditing[T Tx] struct {
	place  Place[T]
	domain string
	seen   map[lastword.Resource]bool
	found  []Finding
}

func (a *auditing[T]) key(r lastword.Resource) Key { return Key{Domain: a.domain, Resource: r} }

func (a *auditing[T]) tell(r lastword.Resource, kind FindingKind, stored, claimed lastword.Token, format string, args ...any) {
	a.found = append(a.found, Finding{Resource: r, Kind: kind, Stored: stored, Claimed: claimed, Text: fmt.Sprintf(format, args...)})
}

func (a *auditing[T]) record(ctx context.Context, authority Authority, r lastword.Resource) error {
	a.seen[r] = true
	before, err := a.place.Inspect(ctx, a.key(r))
	if err != nil {
		return err
	}
	rec := before.Record
	if rec.Frozen {
		a.tell(r, FindingFrozen, rec.Fence, 0, "the record is frozen at fence %s", rec.Fence.Text())
	}
	if rec.Unraised {
		a.tell(r, FindingUnraised, rec.Fence, 0, "the place was restored, and the record has not been raised since")
	}
	if err := a.lastReceipt(ctx, r, rec); err != nil {
		return err
	}
	if _, err := lastword.ParseResource(string(r)); err != nil {
		a.tell(r, FindingNotCanonical, rec.Fence, 0, "no lease can be on it: %s", reasonOf(err))
		return nil
	}
	st, err := authority.Status(ctx, lastword.StatusQuery{Resource: r})
	if err != nil {
		return err
	}
	if !rec.Imported && core.Behind(rec, st.NextFence) {
		a.tell(r, FindingAuthorityBehind, rec.Fence, st.NextFence, "the authority would grant %s next, and the record holds %s", st.NextFence.Text(), rec.Fence.Text())
	}
	if st.Last.Fence == rec.Fence && rec.LeaseID != "" && st.Last.LeaseID != "" && st.Last.LeaseID != rec.LeaseID {
		a.tell(r, FindingOtherTenure, rec.Fence, rec.Fence, "fence %s is of lease %s at the authority, and of lease %s here", rec.Fence.Text(), st.Last.LeaseID, rec.LeaseID)
	}
	return a.completed(ctx, st)
}

func (a *auditing[T]) lastReceipt(ctx context.Context, r lastword.Resource, rec Record) error {
	if rec.LastOperation == "" {
		return nil
	}
	_, found, err := a.place.Find(ctx, a.key(r), rec.LastOperation)
	if err != nil || found {
		return err
	}
	again, err := a.place.Inspect(ctx, a.key(r))
	if err == nil && again.Record.LastOperation == rec.LastOperation {
		a.tell(r, FindingReceiptMissing, rec.Fence, 0, "the receipt of the last write, operation %q, is missing", rec.LastOperation)
	}
	return err
}

func (a *auditing[T]) completed(ctx context.Context, st lastword.Status) error {
	if !st.Last.Completed {
		return nil
	}
	return a.claim(ctx, Claim{Resource: st.Resource, Fence: st.Last.Fence, By: "the authority"})
}

// claim reads the record after the claim was made.
func (a *auditing[T]) claim(ctx context.Context, c Claim) error {
	seen, err := a.place.Inspect(ctx, a.key(c.Resource))
	if err != nil {
		return err
	}
	switch rec := seen.Record; {
	case !rec.Exists:
		a.tell(c.Resource, FindingNotReached, 0, c.Fence, "%s says that the tenure of fence %s has succeeded, and there is no record of the resource here", c.By, c.Fence.Text())
	case rec.Fence < c.Fence:
		a.tell(c.Resource, FindingNotReached, rec.Fence, c.Fence, "%s says that the tenure of fence %s has succeeded, and the record holds %s", c.By, c.Fence.Text(), rec.Fence.Text())
	}
	return nil
}
