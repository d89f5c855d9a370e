package lab

import (
	"context"
	"database/sql"
	"errors"
	"net/url"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/sqlfence"
)

const setValue = `UPDATE document SET value = ? WHERE id = ?`

// openBusiness opens the business database with settings under which a commit
// survives.
func openBusiness(path string) (*sql.DB, error) {
	q := url.Values{"_pragma": {"journal_mode(wal)", "synchronous(full)", "busy_timeout(5000)"}, "_txlock": {"immediate"}}
	return sql.Open("sqlite", "file:"+path+"?"+q.Encode())
}

// business is the database that is to be protected, as the parent looks at it.
type business struct {
	path  string
	db    *sql.DB
	place *sqlfence.Place
}

func newBusiness(ctx context.Context, path string, documents ...string) (b *business, err error) {
	b = &business{path: path}
	if b.db, err = openBusiness(path); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if _, err = b.db.ExecContext(ctx, `CREATE TABLE document (id TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT`); err != nil {
		return nil, err
	}
	for _, id := range documents {
		if _, err = b.db.ExecContext(ctx, `INSERT INTO document VALUES (?, '')`, id); err != nil {
			return nil, err
		}
	}
	if err = sqlfence.Init(ctx, b.db); err != nil {
		return nil, err
	}
	b.place, err = sqlfence.OpenPlace(ctx, b.db, "")
	return b, err
}

func (b *business) value(ctx context.Context, id string) (value string, err error) {
	err = b.db.QueryRowContext(ctx, `SELECT value FROM document WHERE id = ?`, id).Scan(&value)
	return value, err
}

func (b *business) record(ctx context.Context, id string) (fence.Record, error) {
	i, err := b.place.Inspect(ctx, fence.Key{Domain: Domain, Resource: lastword.Resource(id)})
	return i.Record, err
}

func (b *business) close() error {
	var err error
	if b.place != nil {
		err = b.place.Close()
	}
	return errors.Join(err, b.db.Close())
}
