package sqlstore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite" // the caller brings the driver

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/store"
	"github.com/lastword/lastword/store/sqlstore"
)

func ExampleOpen() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()

	s, err := sqlstore.Open(ctx, filepath.Join(dir, "authority.db"), sqlstore.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()

	header := store.Header{Exists: true, Identity: "example"}
	record := store.Record{Resource: "doc/1", Revision: 1, Counter: 1}
	applied, err := s.Commit(ctx,
		store.Step{Create: true, Header: &header},
		store.Step{Epoch: 0, Record: &record},
		store.Step{Epoch: 0, Record: &record}) // on a view that is old by now
	switch {
	case errors.Is(err, lastword.ErrUnknownOutcome):
		fmt.Println("it may have been written: read again before anything else")
	case err != nil:
		fmt.Println("nothing was written:", err)
	default:
		fmt.Println("durable:", applied)
	}

	view, err := s.Read(ctx, store.Query{Resource: "doc/1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("revision", view.Entries[0].Record.Revision)

	_, err = sqlstore.Open(ctx, filepath.Join(dir, "authority.db"), sqlstore.Config{})
	fmt.Println("a second one is refused:", errors.Is(err, lastword.ErrUnavailable))
	// Output:
	// durable: [true true false]
	// revision 1
	// a second one is refused: true
}

func ExampleBackup() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	path := filepath.Join(dir, "authority.db")
	s, err := sqlstore.Open(ctx, path, sqlstore.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close() // it is open all the time
	record := store.Record{Resource: "doc/1", Revision: 1, Counter: 1}
	if _, err := s.Commit(ctx, store.Step{Create: true, Header: &store.Header{Exists: true, Identity: "example"}}, store.Step{Record: &record}); err != nil {
		fmt.Println(err)
		return
	}
	copied, err := sqlstore.Backup(ctx, path, filepath.Join(dir, "backup.db"), sqlstore.BackupConfig{})
	fmt.Println(copied.Resources, "resource", err)
	_, err = sqlstore.Backup(ctx, path, filepath.Join(dir, "backup.db"), sqlstore.BackupConfig{})
	fmt.Println("nothing is replaced:", errors.Is(err, lastword.ErrInvalid))
	// Output:
	// 1 resource <nil>
	// nothing is replaced: true
}
