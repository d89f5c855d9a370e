package guard

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"

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
	warned  bool // that the file cannot be put back
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

// remove empties the directory wherever it is now, and removes it if it is still at its
// name: what somebody else has put there is not ours.
func (p *place) remove() {
	ours := p.atHome()
	p.empty()
	_ = p.root.Close()
	if ours {
		_ = os.Remove(p.dir)
	}
}

func (p *place) empty() {
	entries, _ := fs.ReadDir(p.root.FS(), ".")
	for _, e := range entries {
		_ = p.root.RemoveAll(e.Name())
	}
}

// atHome says that the directory is where its name says.
func (p *place) atHome() bool {
	at, err := os.Lstat(p.dir)
	if err != nil {
		return false
	}
	self, err := p.root.Stat(".")
	return err == nil && os.SameFile(at, self)
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
		_ = p.root.RemoveAll(newName)
	}
	return err
}

func (p *place) store() error {
	if err := p.root.WriteFile(newName, p.content, 0o600); err != nil {
		return err
	}
	return p.root.Rename(newName, grantName)
}

// keep puts the file back if somebody has removed or changed it, its mode, or the
// directory: those who clean up temporary directories do not know that a long job still
// needs it. Fence and grant of a tenure never change (R29), and so neither does the
// content.
func (p *place) keep(log *slog.Logger) {
	if p.intact() {
		p.warned = false
		return
	}
	err := p.restore()
	switch {
	case err == nil:
		p.warned = false
	case !p.warned:
		p.warned = true
		log.Warn("the grant file is gone or was changed, and cannot be put back", "file", p.path(), "error", err)
	}
}

func (p *place) intact() bool {
	dir, err := p.root.Stat(".")
	if err != nil || dir.Mode().Perm() != 0o700 || !p.atHome() {
		return false
	}
	file, err := p.root.Lstat(grantName)
	if err != nil || !file.Mode().IsRegular() || file.Mode().Perm() != 0o600 || file.Size() != int64(len(p.content)) {
		return false
	}
	f, err := p.root.OpenFile(grantName, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	room := make([]byte, len(p.content)+1)
	n, _ := f.Read(room)
	return bytes.Equal(room[:n], p.content)
}

func (p *place) restore() error {
	if !p.atHome() {
		if err := p.moveIn(); err != nil {
			return err
		}
	}
	if err := p.root.Chmod(".", 0o700); err != nil {
		return err
	}
	// What is no file would be in the way of one.
	for _, name := range []string{grantName, newName} {
		if info, err := p.root.Lstat(name); err == nil && !info.Mode().IsRegular() {
			if err := p.root.RemoveAll(name); err != nil {
				return err
			}
		}
	}
	return p.replace()
}

// moveIn makes the directory anew at its name. It never takes one that is there.
func (p *place) moveIn() error {
	if err := os.Mkdir(p.dir, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(p.dir)
	if err != nil {
		return errors.Join(err, os.Remove(p.dir))
	}
	p.empty() // it may have been moved: no grant stays there
	_ = p.root.Close()
	p.root = root
	return nil
}
