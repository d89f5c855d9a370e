package guard

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/grantfile"
)

const (
	grantName = "grant.json"
	newName   = "grant.new"
)

// place is the private directory of a run, with its grant file.
type place struct {
	dir     string
	root    *os.Root // the directory itself, whoever gives its name to another one
	content []byte
	written fs.FileInfo
}

func newPlace(parent string) (*place, error) {
	dir, err := os.MkdirTemp(parent, "lastword-exec-") // 0700
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, errors.Join(err, os.Remove(dir))
	}
	// The command may run in another directory than this process.
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, errors.Join(err, root.Close(), os.Remove(dir))
	}
	return &place{dir: dir, root: root}, nil
}

func (p *place) path() string { return filepath.Join(p.dir, grantName) }

func (p *place) remove() {
	_ = p.root.Close()
	_ = os.RemoveAll(p.dir)
}

func (p *place) write(ref lastword.TenureRef, grant string) (err error) {
	if p.content, err = grantfile.New(ref, grant).Marshal(); err != nil {
		return err
	}
	return p.replace()
}

// replace puts the whole file in its place at once: a reader sees one or the other.
func (p *place) replace() error {
	err := p.store()
	if err != nil {
		_ = p.root.Remove(newName)
	}
	return err
}

func (p *place) store() error {
	if err := p.root.WriteFile(newName, p.content, 0o600); err != nil {
		return err
	}
	if err := p.root.Rename(newName, grantName); err != nil {
		return err
	}
	var err error
	p.written, err = p.root.Lstat(grantName)
	return err
}

// keep puts the file back if somebody has removed or changed it: those who clean up
// temporary directories do not know that a long job still needs it. Fence and grant
// of a tenure never change (R29), and so neither does the content.
func (p *place) keep(log *slog.Logger) {
	now, err := p.root.Lstat(grantName)
	if err == nil && os.SameFile(now, p.written) && now.ModTime().Equal(p.written.ModTime()) && now.Size() == p.written.Size() {
		return
	}
	if err := p.replace(); err != nil {
		log.Warn("the grant file is gone or was changed, and cannot be put back", "file", p.path(), "error", err)
	}
}
