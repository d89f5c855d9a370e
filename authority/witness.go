package authority

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// Mark is what a [Witness] holds: the issuer epoch in force, one that is being
// started, the longest TTL granted and the store it belongs to (R10).
type Mark = core.Witness

// Witness is a small durable place outside the store's backup set, shared by all
// authority processes of a domain. Implementations are safe for concurrent use by
// several processes.
type Witness interface {
	// Load is the present mark, nil if there is none.
	Load(ctx context.Context) (*Mark, error)
	// Swap replaces old (nil: none) by next and reports whether old was there. It
	// is durable when it returns true.
	Swap(ctx context.Context, old *Mark, next Mark) (bool, error)
}

// MemoryWitness is a witness for stores that live in memory.
type MemoryWitness struct {
	mu   sync.Mutex
	mark *Mark
}

// NewMemoryWitness returns an empty witness.
func NewMemoryWitness() *MemoryWitness { return &MemoryWitness{} }

// Load implements [Witness].
func (w *MemoryWitness) Load(context.Context) (*Mark, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return clone(w.mark), nil
}

// Swap implements [Witness].
func (w *MemoryWitness) Swap(_ context.Context, old *Mark, next Mark) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !same(w.mark, old) {
		return false, nil
	}
	w.mark = &next
	return true, nil
}

func clone(m *Mark) *Mark {
	if m == nil {
		return nil
	}
	c := *m
	return &c
}

func same(a, b *Mark) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

// FileWitness keeps the mark in a file of its own, as JSON that people can read.
// Beside the store's file it guards against a store that was put back alone; on
// another volume also against one that was put back with everything beside it.
type FileWitness struct {
	path string
	mu   sync.Mutex
}

// NewFileWitness returns the witness in the file at path, which is made by the
// first Swap.
func NewFileWitness(path string) *FileWitness { return &FileWitness{path: path} }

type markFile struct {
	Version  int    `json:"version"`
	Store    string `json:"store"`
	Current  uint32 `json:"current_epoch"`
	Pending  uint32 `json:"pending_epoch"`
	Starting bool   `json:"starting"`
	First    bool   `json:"first_start"`
	Longest  int64  `json:"longest_ttl_ns"`
}

// Load implements [Witness].
func (w *FileWitness) Load(context.Context) (*Mark, error) {
	b, err := readMark(w.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, w.failed(err)
	}
	var f markFile
	if json.Unmarshal(b, &f) != nil {
		return nil, w.failed(errors.New("it is not the JSON of a witness"))
	}
	if f.Version != 1 || f.Current > lastword.MaxEpoch || f.Pending > lastword.MaxEpoch || f.Longest < 0 {
		return nil, w.failed(fmt.Errorf("version %d with epochs %d and %d is no mark of version 1", f.Version, f.Current, f.Pending))
	}
	return &Mark{Current: f.Current, Pending: f.Pending, Starting: f.Starting, First: f.First, Longest: core.Span(f.Longest), Store: f.Store}, nil
}

// readMark reads a file that may be anything: it does not hang on a named pipe, nor read
// a device for ever.
func readMark(path string) ([]byte, error) {
	const most = 64 << 10
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close() // it was only read
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("it is not a regular file")
	}
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && len(b) > most {
		err = fmt.Errorf("it has more than %d bytes", most)
	}
	return b, err
}

// Swap implements [Witness]. Processes exclude each other by a lock on a file
// beside it, which the kernel drops with its process.
func (w *FileWitness) Swap(ctx context.Context, old *Mark, next Mark) (bool, error) {
	return w.change(ctx, old, func() error { return w.write(next) })
}

// Retire removes mark, after it was moved to another witness, and reports whether it
// was there. The file stays beside its place, with .moved added to its name.
func (w *FileWitness) Retire(ctx context.Context, mark Mark) (bool, error) {
	return w.change(ctx, &mark, func() error {
		return errors.Join(os.Rename(w.path, w.path+".moved"), syncDir(filepath.Dir(w.path)))
	})
}

func (w *FileWitness) change(ctx context.Context, old *Mark, do func() error) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	lock, err := os.OpenFile(w.path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return false, w.failed(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return false, w.failed(err)
	}
	now, err := w.Load(ctx)
	if err != nil || !same(now, old) {
		return false, err
	}
	if err := do(); err != nil {
		return false, w.failed(err)
	}
	return true, nil
}

// write is durable before it returns: the file, then the directory that names it. The lock
// is held, so that the name on the way can be the same every time, and what a process has
// left that was killed is written over.
func (w *FileWitness) write(m Mark) error {
	b, err := json.MarshalIndent(markFile{
		Version: 1, Store: m.Store, Current: m.Current, Pending: m.Pending, Starting: m.Starting, First: m.First, Longest: int64(m.Longest),
	}, "", "  ")
	if err != nil {
		return err
	}
	dir := filepath.Dir(w.path)
	tmp, err := os.OpenFile(w.path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(append(b, '\n'))
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), w.path)
	}
	if err != nil {
		return err
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (w *FileWitness) failed(err error) error {
	return &lastword.Error{
		Code: lastword.CodeUnavailable, Message: "the witness " + w.path + " cannot be used", Err: err,
		Hint: "make it readable and writable for this process, or put the right file back",
	}
}
