package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"slices"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/store"
)

// Read answers from memory what was last committed or read, and asks the file for
// the rest. It does not wait for a Commit that is under way unless it needs the file.
//
// A tenure that is asked for by its lease id alone, and is not among the latest of
// its resource, is searched among all request records of that resource.
func (s *Store) Read(ctx context.Context, queries ...store.Query) (store.View, error) {
	if err := ctx.Err(); err != nil {
		return store.View{}, explain("read", s.path, err)
	}
	if view, ok := s.cache.view(queries); ok {
		if same, _ := s.named(); same {
			return view, nil
		}
	}
	for _, q := range queries {
		if q.RequestID == "" && q.LeaseID != "" {
			return s.search(ctx, queries)
		}
	}
	if err := s.writing.lock(ctx); err != nil {
		return store.View{}, explain("read", s.path, err)
	}
	defer s.writing.unlock()
	return s.readFile(ctx, queries)
}

// readFile is called with the writing semaphore held. It needs no transaction, since
// nothing but this store writes. Searches are left out.
func (s *Store) readFile(ctx context.Context, queries []store.Query) (store.View, error) {
	if err := s.usable("read"); err != nil {
		return store.View{}, err
	}
	if err := s.sameFile("read"); err != nil {
		return store.View{}, err
	}
	var view store.View
	err := s.turns.Retry(ctx, dialect, func(ctx context.Context) (err error) {
		ctx = context.WithoutCancel(ctx)
		if err := s.refresh(ctx); err != nil {
			return err
		}
		view.Header, _ = s.cache.headerIfValid()
		view.Entries = make([]store.Entry, len(queries))
		for i, q := range queries {
			if view.Entries[i], err = s.entry(ctx, q); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return store.View{}, explain("read", s.path, err)
	}
	return view, nil
}

// search looks for lease ids in a snapshot of the very moment at which the rest is
// read, so that commits need not wait for it.
func (s *Store) search(ctx context.Context, queries []store.Query) (store.View, error) {
	if err := s.reading.lock(ctx); err != nil {
		return store.View{}, explain("read", s.path, err)
	}
	defer s.reading.unlock()
	var view store.View
	err := s.begin(ctx, "read", func() (err error) {
		view, err = s.readFile(ctx, queries)
		return err
	})
	if err != nil {
		return store.View{}, err
	}
	for i, q := range queries {
		if err == nil && view.Entries[i].Request == nil && q.RequestID == "" && q.LeaseID != "" {
			view.Entries[i].Request, err = s.leaseRequest(ctx, q)
		}
	}
	if err = errors.Join(err, s.end(ctx)); err != nil {
		return store.View{}, explain("read", s.path, err)
	}
	return view, nil
}

func (s *Store) leaseRequest(ctx context.Context, q store.Query) (found *store.Request, err error) {
	err = s.rows(ctx, sqlRequestByLease, []any{string(q.Resource), q.LeaseID}, func(rows *sql.Rows) error {
		r, err := scanRequest(rows)
		found = &r
		return err
	})
	return found, err
}

// refresh reads the header unless it is known, and forgets what others changed.
func (s *Store) refresh(ctx context.Context) error {
	if err := s.noticeOthers(ctx); err != nil {
		return err
	}
	if _, known := s.cache.headerIfValid(); known {
		return nil
	}
	header, err := scanHeader(s.write.header.QueryRowContext(ctx))
	if err != nil {
		return err
	}
	s.cache.setHeader(header)
	return nil
}

func (s *Store) entry(ctx context.Context, q store.Query) (answer store.Entry, err error) {
	if one, ok := s.cache.view([]store.Query{q}); ok {
		return one.Entries[0], nil
	}
	if known, ok := s.cache.view([]store.Query{{Resource: q.Resource}}); ok {
		answer.Record = known.Entries[0].Record
	} else {
		var requests []store.Request
		if answer.Record, requests, err = s.load(ctx, q.Resource); err != nil {
			return answer, err
		}
		if i := slices.IndexFunc(requests, func(r store.Request) bool { return matches(&r, &q) }); i >= 0 {
			answer.Request = &requests[i]
		}
		if answer.Request != nil || len(requests) <= keptRequests {
			return answer, nil
		}
	}
	answer.Request, err = s.request(ctx, q)
	return answer, err
}

// load reads a record with some of its request records, and keeps them. If these are
// more than keptRequests, there may be others.
func (s *Store) load(ctx context.Context, resource lastword.Resource) (record store.Record, requests []store.Request, err error) {
	if record, err = s.record(ctx, resource); err != nil {
		return record, nil, err
	}
	if requests, err = s.someRequests(ctx, resource); err != nil {
		return record, nil, err
	}
	var names []store.RequestKey
	if len(requests) > keptRequests {
		if names, err = s.someNames(ctx, resource); err != nil {
			return record, nil, err
		}
	}
	s.cache.load(record, requests, names, len(names) <= loadedNames)
	return record, requests, nil
}

func (s *Store) record(ctx context.Context, resource lastword.Resource) (store.Record, error) {
	record, err := scanRecord(s.write.record.QueryRowContext(ctx, string(resource)))
	if errors.Is(err, sql.ErrNoRows) {
		return store.Record{Resource: resource}, nil
	}
	return record, err
}

func (s *Store) someRequests(ctx context.Context, resource lastword.Resource) (requests []store.Request, err error) {
	rows, err := s.write.someRequests.QueryContext(ctx, string(resource), keptRequests+1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		r, err := scanRequest(rows)
		if err != nil {
			return nil, err
		}
		requests = append(requests, r)
	}
	return requests, rows.Err()
}

func (s *Store) someNames(ctx context.Context, resource lastword.Resource) (names []store.RequestKey, err error) {
	rows, err := s.write.someNames.QueryContext(ctx, string(resource), loadedNames+1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var key store.RequestKey
		if err := rows.Scan(&key.Owner, &key.ID); err != nil {
			return nil, err
		}
		names = append(names, key)
	}
	return names, rows.Err()
}

func (s *Store) request(ctx context.Context, q store.Query) (*store.Request, error) {
	if q.RequestID == "" {
		return nil, nil
	}
	r, err := scanRequest(s.write.requestByID.QueryRowContext(ctx, string(q.Resource), q.Owner, q.RequestID))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return &r, err
}

// List reads a snapshot of the file; commits go on beside it.
func (s *Store) List(ctx context.Context, prefix string, after lastword.Resource, limit int) ([]store.Record, error) {
	query, args := sqlList, []any{string(after), prefix}
	if below, ok := successor(prefix); ok {
		query, args = sqlListBelow, append(args, below)
	}
	var records []store.Record
	err := s.snapshot(ctx, "list", query, append(args, max(limit, 0)), func(rows *sql.Rows) error {
		r, err := scanRecord(rows)
		records = append(records, r)
		return err
	})
	if err != nil {
		return nil, err
	}
	return records, nil
}

// Ended reads a snapshot of the file by an index; commits go on beside it.
func (s *Store) Ended(ctx context.Context, until store.Tick, limit int) ([]store.Ended, error) {
	var ended []store.Ended
	args := []any{int64(min(until, math.MaxInt64)), max(limit, 0)}
	err := s.snapshot(ctx, "ended", sqlEnded, args, func(rows *sql.Rows) (err error) {
		var e store.Ended
		e.Request, err = scanRequest(rows, &e.Resource)
		ended = append(ended, e)
		return err
	})
	if err != nil {
		return nil, err
	}
	return ended, nil
}

// successor is the least string that is greater than all that begin with prefix.
func successor(prefix string) (string, bool) {
	b := []byte(prefix)
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] < 0xff {
			b[i]++
			return string(b[:i+1]), true
		}
	}
	return "", false
}

// snapshot runs a query on the reading connection and calls scan for each row.
func (s *Store) snapshot(ctx context.Context, op, query string, args []any, scan func(*sql.Rows) error) error {
	if err := s.reading.lock(ctx); err != nil {
		return explain(op, s.path, err)
	}
	defer s.reading.unlock()
	if err := s.begin(ctx, op, func() error { return nil }); err != nil {
		return err
	}
	err := s.rows(ctx, query, args, scan)
	if err = errors.Join(err, s.end(ctx)); err != nil {
		return explain(op, s.path, err)
	}
	return nil
}

// begin opens a snapshot between two commits: it holds all that was acknowledged and
// nothing that no Read has shown yet. same is called at that very moment.
func (s *Store) begin(ctx context.Context, op string, same func() error) error {
	if err := s.writing.lock(ctx); err != nil {
		return explain(op, s.path, err)
	}
	defer s.writing.unlock()
	if err := s.usable(op); err != nil {
		return err
	}
	err := s.turns.Retry(ctx, dialect, func(ctx context.Context) error {
		ctx = context.WithoutCancel(ctx)
		if _, err := s.reader.ExecContext(ctx, "BEGIN"); err != nil {
			return err
		}
		if _, err := scanHeader(s.reader.QueryRowContext(ctx, sqlHeader)); err != nil {
			return errors.Join(err, s.end(ctx))
		}
		return nil
	})
	if err != nil {
		return explain(op, s.path, err)
	}
	if err := same(); err != nil {
		_ = s.end(ctx) // the reason is the one above
		return err
	}
	return nil
}

// end closes the snapshot.
func (s *Store) end(ctx context.Context) error {
	_, err := s.reader.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
	return err
}

func (s *Store) rows(ctx context.Context, query string, args []any, scan func(*sql.Rows) error) (err error) {
	rows, err := s.reader.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
