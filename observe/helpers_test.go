package observe_test

import (
	"context"
	"errors"
	"testing"

	"github.com/lastword/lastword/fence/memfence"
)

func wantIs(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got %v, want %v", err, want)
	}
}

func second[T any](_ T, err error) error { return err }

func nothing(context.Context, *memfence.Tx) ([]byte, error) { return nil, nil }
