package sqlstore

import (
	"database/sql"
	"errors"
	"fmt"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/store"
)

// scanner is *sql.Row or *sql.Rows.
type scanner interface{ Scan(dest ...any) error }

func headerArgs(h *store.Header) []any {
	return []any{h.Identity, h.Domain, int64(h.TickSpan), int64(h.Epoch), int64(h.Tick), int64(h.Floor), int64(h.HoldUntil), bit(h.Witnessed)}
}

// scanHeader returns the zero header if there is no row.
func scanHeader(row scanner) (store.Header, error) {
	h := store.Header{Exists: true}
	err := row.Scan(&h.Identity, &h.Domain, &h.TickSpan, &h.Epoch, &h.Tick, &h.Floor, &h.HoldUntil, &h.Witnessed)
	if errors.Is(err, sql.ErrNoRows) {
		return store.Header{}, nil
	}
	return h, err
}

// recordArgs appends the columns behind the resource.
func recordArgs(to []any, r *store.Record) []any {
	l, p := &r.Lease, &r.Previous
	return append(to,
		int64(r.Revision), int64(r.Epoch), int64(r.Counter),
		string(l.State), l.Owner, int64(l.Fence), int64(l.Deadline), l.ID, l.RequestID,
		l.Root.String(), string(l.Class), int64(l.PolicyGeneration), int64(l.TTL), int64(l.Ticks), int64(l.GrantedRevision),
		l.IssuedAt, l.KeyID, int64(l.EndedTick), bit(l.Completed), blob(l.Result),
		string(p.State), int64(p.Fence), p.LeaseID, p.Owner, bit(p.Completed), blob(p.Result), int64(r.Reported),
	)
}

func scanRecord(row scanner) (r store.Record, err error) {
	l, p := &r.Lease, &r.Previous
	err = row.Scan(
		&r.Resource, &r.Revision, &r.Epoch, &r.Counter,
		&l.State, &l.Owner, &l.Fence, &l.Deadline, &l.ID, &l.RequestID,
		(*digest)(&l.Root), &l.Class, &l.PolicyGeneration, &l.TTL, &l.Ticks, &l.GrantedRevision,
		&l.IssuedAt, &l.KeyID, &l.EndedTick, &l.Completed, &l.Result,
		&p.State, &p.Fence, &p.LeaseID, &p.Owner, &p.Completed, &p.Result, &r.Reported,
	)
	return r, err
}

func requestArgs(to []any, resource lastword.Resource, r *store.Request) []any {
	return append(to, string(resource), r.Owner, r.ID, string(r.State), int64(r.Fence), r.LeaseID, raw(&r.Params),
		int64(r.EndedTick), bit(r.Completed), blob(r.Result))
}

func scanRequest(row scanner, before ...any) (r store.Request, err error) {
	err = row.Scan(append(before, &r.Owner, &r.ID, &r.State, &r.Fence, &r.LeaseID, (*bytesDigest)(&r.Params),
		&r.EndedTick, &r.Completed, &r.Result)...)
	return r, err
}

// digest reads the spelling of [lastword.Digest.String].
type digest lastword.Digest

func (d *digest) Scan(value any) error {
	var s string
	switch v := value.(type) {
	case string:
		s = v
	case []byte:
		s = string(v)
	default:
		return fmt.Errorf("a digest is %T, not text", value)
	}
	if s == "" {
		*d = digest{}
		return nil
	}
	parsed, err := lastword.ParseDigest(s)
	*d = digest(parsed)
	return err
}

// bytesDigest reads the 32 bytes of a digest, or NULL.
type bytesDigest lastword.Digest

func (d *bytesDigest) Scan(value any) error {
	b, ok := value.([]byte)
	if value != nil && (!ok || len(b) != len(d)) {
		return fmt.Errorf("a digest is %T of %d bytes, not %d bytes", value, len(b), len(d))
	}
	*d = bytesDigest{}
	copy(d[:], b)
	return nil
}

func raw(d *lastword.Digest) any {
	if d.IsZero() {
		return nil
	}
	return d[:]
}

func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// blob keeps nil as NULL.
func blob(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}
