package fencesql

import (
	"context"
	"database/sql"
	"errors"

	"github.com/lastword/lastword/fence"
)

// Bundle is the newest trust bundle that was brought to the database (R13).
func Bundle(ctx context.Context, e Engine, c Conn, domain string) (fence.BundleFloor, error) {
	var sequence, minimum int64
	err := c.Row(ctx, e.text().Bundle, domain).Scan(&sequence, &minimum)
	if errors.Is(err, sql.ErrNoRows) {
		return fence.BundleFloor{}, nil
	}
	return fence.BundleFloor{Sequence: uint64(sequence), MinimumEpoch: uint32(minimum)}, err
}

// RaiseBundle stores what was brought. Neither number falls: that the statement and a
// trigger see to.
func RaiseBundle(ctx context.Context, t *Tx, domain string, seen fence.BundleFloor) error {
	key := fence.Key{Domain: domain}
	if err := fits(seen.Sequence); err != nil {
		return t.fail("bundle", key, err)
	}
	_, err := t.conn.Exec(ctx, t.engine.text().RaiseBundle, domain, int64(seen.Sequence), int64(seen.MinimumEpoch))
	return t.fail("bundle", key, err)
}
