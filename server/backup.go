package server

import (
	"context"

	"github.com/lastword/lastword/store/sqlstore"
)

// Backup copies the store of an embedded authority, "sqlite:PATH", to a file, while the
// authority runs or while it does not; see [sqlstore.Backup]. An existing backup is
// replaced with force only. It copies neither the key nor the witness.
func Backup(ctx context.Context, store, file string, force bool) (sqlstore.Copy, error) {
	path, err := storePath(store)
	if err != nil {
		return sqlstore.Copy{}, err
	}
	return sqlstore.Backup(ctx, path, file, sqlstore.BackupConfig{Force: force})
}
