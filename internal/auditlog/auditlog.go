// Package auditlog keeps what operators do in a file of JSON lines.
//
// # Guarantees
//
// A line is on the disk before [Log.Begin], or the function that it returns, is done.
// Lines of several processes do not mix: each is appended under a lock of the file that
// the kernel drops with its process. Nothing is ever changed or removed here. A line
// that a crash has cut short is left as it is, and the next one begins on a line of its
// own.
//
// # Not guaranteed
//
// Who may write to the file can change it: the lines are not chained yet, so readers must
// ignore members that they do not know. The file is not rotated. An operator's name is
// what that operator says.
package auditlog

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/lastword/lastword"
)

// Entry is one line. An action has two: one before it is done, and one with its outcome
// and nothing else but id, action and time. An action with the first alone may have been
// done.
type Entry struct {
	Version  int               `json:"v"`
	At       time.Time         `json:"at"` // by the wall clock of the host
	ID       string            `json:"id"`
	Action   string            `json:"action"`
	Operator string            `json:"operator,omitempty"`
	Reason   string            `json:"reason,omitempty"`
	Resource string            `json:"resource,omitempty"`
	Fence    uint64            `json:"fence,string,omitempty"`
	Details  map[string]string `json:"details,omitempty"`
	Outcome  string            `json:"outcome,omitempty"`
}

const version = 1

// Log is a file that entries are appended to. It is safe for concurrent use, by several
// processes.
type Log struct {
	path string
	now  func() time.Time
}

// New returns the log in the file at path, which is made, with mode 0600, by the first
// entry. now is the wall clock.
func New(path string, now func() time.Time) *Log { return &Log{path, now} }

// Path is the file.
func (l *Log) Path() string { return l.path }

// Begin makes durable that the action of e is about to be done, and gives it an id. The
// function it returns does the same with the outcome.
func (l *Log) Begin(e Entry) (ended func(outcome string) error, err error) {
	e.ID, e.Outcome = strings.ToLower(rand.Text()), ""
	if err := l.append(e); err != nil {
		return nil, err
	}
	return func(outcome string) error { return l.append(Entry{ID: e.ID, Action: e.Action, Outcome: outcome}) }, nil
}

func (l *Log) append(e Entry) error {
	e.Version, e.At = version, l.now().UTC().Truncate(time.Microsecond)
	line, err := json.Marshal(e)
	if err == nil {
		err = l.write(append(line, '\n'))
	}
	if err == nil {
		return nil
	}
	hint := "make room, or let this process write to it"
	if errors.Is(err, errIrregular) || errors.Is(err, errForeign) || errors.Is(err, syscall.EISDIR) {
		hint = "name another file with --audit"
	}
	return &lastword.Error{Code: lastword.CodeUnavailable, Message: "the audit log " + l.path + " cannot be written to", Err: bare(err), Hint: hint}
}

func (l *Log) write(line []byte) (err error) {
	_, missing := os.Lstat(l.path)
	f, err := os.OpenFile(l.path, os.O_RDWR|os.O_CREATE|os.O_APPEND|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return errIrregular
	}
	if err := lock(f); err != nil {
		return err
	}
	if info, err = f.Stat(); err != nil {
		return err
	}
	if n := info.Size(); n > 0 {
		if err := ours(f, n); err != nil {
			return err
		}
		last := make([]byte, 1)
		if _, err := f.ReadAt(last, n-1); err != nil {
			return err
		}
		if last[0] != '\n' { // a crash cut the line before short
			line = append([]byte{'\n'}, line...)
		}
	}
	if _, err := f.Write(line); err != nil {
		return err
	}
	if err := f.Sync(); err != nil || missing == nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(l.path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// ours refuses a file that was named by mistake, and so leaves it as it is: a database, a
// key. A crash can have cut the first line short, or left zeros in its place.
func ours(f *os.File, size int64) error {
	const begin = `{"v":`
	first := make([]byte, min(size, int64(len(begin))))
	if _, err := f.ReadAt(first, 0); err != nil {
		return err
	}
	if first[0] != 0 && !strings.HasPrefix(begin, string(first)) {
		return errForeign
	}
	return nil
}

var (
	errIrregular = errors.New("it is not a regular file")
	errForeign   = errors.New("it is no audit log: it does not begin with an entry")
)

// lock waits for its turn; the kernel drops the lock with the descriptor.
func lock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// Line is one line of a log as it was read.
type Line struct {
	Number int
	Entry  Entry
	// Damaged says that it is no entry: a crash has cut it short, or it was changed.
	Damaged bool
}

// maxLine bounds what is read of a line.
const maxLine = 1 << 20

// Read calls each for every line of the file at path, the oldest first, until it returns
// an error. A file that is not there has no lines.
func Read(path string, each func(Line) error) error {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // not to hang on a named pipe
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return unreadable(path, err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return unreadable(path, errors.Join(err, errIrregular))
	}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxLine)
	for n := 1; lines.Scan(); n++ {
		line := Line{Number: n}
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		if err := json.Unmarshal(lines.Bytes(), &line.Entry); err != nil || line.Entry.Version < version || line.Entry.ID == "" {
			line.Damaged = true
		}
		if err := each(line); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil && !errors.Is(err, io.EOF) {
		return unreadable(path, err)
	}
	return nil
}

func unreadable(path string, err error) error {
	return &lastword.Error{Code: lastword.CodeUnavailable, Message: fmt.Sprintf("the audit log %s cannot be read", path), Err: bare(err)}
}

// bare is err without the path, which the message names already.
func bare(err error) error {
	if p, ok := errors.AsType[*os.PathError](err); ok {
		return p.Err
	}
	return err
}
