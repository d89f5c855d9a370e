package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/internal/grantfile"
)

// tenure is one with a grant that a key has signed.
func tenure(t testing.TB) lastword.Tenure {
	t.Helper()
	key, err := grant.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	signer, err := grant.NewSigner("demo", key)
	if err != nil {
		t.Fatal(err)
	}
	ref := lastword.TenureRef{Resource: "doc/a", Owner: "w1", RequestID: "r1", LeaseID: "l1", Fence: 41}
	signed, digest, err := signer.Sign(signer.KeyID(), grant.Claims{
		Domain: "demo", Resource: ref.Resource, Owner: ref.Owner, RequestID: ref.RequestID, LeaseID: ref.LeaseID, Fence: ref.Fence,
		Class: lastword.ClassWrite, TTL: time.Minute, IssuedAt: time.Unix(1_800_000_000, 0),
	})
	if err != nil {
		t.Fatal(err)
	}
	return lastword.Tenure{TenureRef: ref, Grant: signed, GrantDigest: digest, TTL: time.Minute}
}

func TestAGrantFileComesBackAsItWasWritten(t *testing.T) {
	t.Parallel()
	want := tenure(t)
	path := filepath.Join(t.TempDir(), "a.grant")
	w, err := reserveGrantFile(path, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is there before it is written: %v", err)
	}
	if err := w.commit(fileOf(want)); err != nil {
		t.Fatal(err)
	}
	w.discard()
	f, err := readGrantFile("renew", path)
	if err != nil || f.Ref() != want.TenureRef || f.Grant() != want.Grant {
		t.Errorf("got %+v, %v", f.Ref(), err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v; want 0600", info.Mode(), err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".lastword-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestAGrantFileThatCameMeanwhileIsNotOverwritten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.grant")
	w, err := reserveGrantFile(path, false)
	if err != nil {
		t.Fatal(err)
	}
	defer w.discard()
	if err := os.WriteFile(path, []byte("another's"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.commit(fileOf(tenure(t))); !errors.Is(err, os.ErrExist) {
		t.Errorf("got %v, want that it exists", err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "another's" {
		t.Errorf("content %q, %v", b, err)
	}
}

func fileOf(t lastword.Tenure) grantfile.File { return grantfile.New(t.TenureRef, t.Grant) }
