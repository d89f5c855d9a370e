package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
)

// maxGrantFile bounds what is read of a file that may be anything.
const maxGrantFile = 64 << 10

// grantFile is what acquire leaves for the commands that follow it: the grant and the
// names that renew, release and complete have to match. docs/cli.md has the schema.
type grantFile struct {
	Version   int              `json:"version"`
	Resource  string           `json:"resource"`
	Owner     string           `json:"owner"`
	RequestID string           `json:"request_id"`
	LeaseID   string           `json:"lease_id"`
	Fence     json.Number      `json:"fence"` // a string in what we write
	Grant     string           `json:"grant"`
	claims    grant.Unverified // of Grant; believed by nobody
}

func newGrantFile(t lastword.Tenure) grantFile {
	return grantFile{
		Version: 1, Resource: string(t.Resource), Owner: t.Owner, RequestID: t.RequestID,
		LeaseID: t.LeaseID, Fence: json.Number(t.Fence.String()), Grant: t.Grant,
	}
}

func (f grantFile) marshal() ([]byte, error) {
	type text struct {
		Version   int    `json:"version"`
		Resource  string `json:"resource"`
		Owner     string `json:"owner"`
		RequestID string `json:"request_id"`
		LeaseID   string `json:"lease_id"`
		Fence     string `json:"fence"`
		Grant     string `json:"grant"`
	}
	b, err := json.MarshalIndent(text{f.Version, f.Resource, f.Owner, f.RequestID, f.LeaseID, string(f.Fence), f.Grant}, "", "  ")
	return append(b, '\n'), err
}

// ref is the tenure that the file names. The authority decides whether it is one.
func (f grantFile) ref() lastword.TenureRef {
	c := f.claims.Claims
	return lastword.TenureRef{Resource: c.Resource, Owner: c.Owner, RequestID: c.RequestID, LeaseID: c.LeaseID, Fence: c.Fence}
}

// parseGrantFile is strict: every member once, nothing else, and nothing that differs
// from what the grant itself says. Errors never repeat the grant.
func parseGrantFile(b []byte) (grantFile, error) {
	var f grantFile
	if len(bytes.TrimSpace(b)) == 0 {
		return f, errors.New("it is empty")
	}
	if len(b) > maxGrantFile {
		return f, fmt.Errorf("it has more than %d bytes", maxGrantFile)
	}
	if err := f.decode(b); err != nil {
		return grantFile{}, err
	}
	if f.Version != 1 {
		return grantFile{}, fmt.Errorf("it has version %d, and this program knows version 1", f.Version)
	}
	var err error
	if f.claims, err = grant.Inspect(f.Grant); err != nil {
		return grantFile{}, fmt.Errorf("the grant in it is broken: %s", reason(err))
	}
	fence, err := lastword.ParseToken(string(f.Fence))
	if err != nil {
		return grantFile{}, errors.New(reason(err))
	}
	c := f.claims.Claims
	said := lastword.TenureRef{Resource: lastword.Resource(f.Resource), Owner: f.Owner, RequestID: f.RequestID, LeaseID: f.LeaseID, Fence: fence}
	if said != f.ref() {
		return grantFile{}, fmt.Errorf("it is not about the tenure that its grant is about (resource %s, fence %s)", c.Resource, c.Fence.Text())
	}
	return f, nil
}

// decode reads one flat object. encoding/json alone would take a member twice, and
// one in other letters.
func (f *grantFile) decode(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return errors.New("it is no JSON object")
	}
	text := map[string]*string{
		"resource": &f.Resource, "owner": &f.Owner, "request_id": &f.RequestID, "lease_id": &f.LeaseID, "grant": &f.Grant,
	}
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return broken(err)
		}
		if seen[name] {
			return fmt.Errorf("it has the member %q twice", clip(name))
		}
		seen[name] = true
		if err := f.member(d, name, text); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return broken(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is something behind its JSON object")
	}
	for _, name := range []string{"version", "resource", "owner", "request_id", "lease_id", "fence", "grant"} {
		if !seen[name] {
			return fmt.Errorf("it lacks the member %q", name)
		}
	}
	return nil
}

func (f *grantFile) member(d *json.Decoder, name string, text map[string]*string) error {
	target, isText := text[name]
	if !isText && name != "version" && name != "fence" {
		return fmt.Errorf("it has a member %q that is unknown here", clip(name))
	}
	value, err := d.Token()
	if err != nil {
		return broken(err)
	}
	switch v := value.(type) {
	case string:
		switch {
		case isText:
			*target = v
			return nil
		case name == "fence":
			f.Fence = json.Number(v)
			return nil
		}
	case json.Number:
		switch {
		case name == "version" && v == "1":
			f.Version = 1
			return nil
		case name == "version":
			return fmt.Errorf("it has version %s, and this program knows version 1", clip(string(v)))
		case name == "fence":
			f.Fence = v
			return nil
		}
	}
	return fmt.Errorf("its member %q is of the wrong kind", name)
}

func broken(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("it ends in the middle")
	}
	return errors.New("its JSON is broken")
}

// badFile is one clear line about a file that the caller named.
func badFile(op, path, why, hint string) error {
	return &lastword.Error{Code: lastword.CodeInvalid, Op: op, Message: fmt.Sprintf("grant file %s: %s", path, why), Hint: hint}
}

const makeGrantFile = "lastword acquire RESOURCE --grant FILE makes one"

func readGrantFile(op, path string) (grantFile, error) {
	b, err := readSmall(path, maxGrantFile)
	if err != nil {
		return grantFile{}, badFile(op, path, err.Error(), makeGrantFile)
	}
	f, err := parseGrantFile(b)
	if err != nil {
		return grantFile{}, badFile(op, path, err.Error(), makeGrantFile)
	}
	return f, nil
}

// readSmall reads a regular file of at most limit bytes. It does not hang on a pipe.
func readSmall(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, pathless(err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, pathless(err)
	case info.IsDir():
		return nil, errors.New("it is a directory")
	case !info.Mode().IsRegular():
		return nil, errors.New("it is not a regular file")
	}
	return limited(f, limit)
}

func limited(r io.Reader, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, pathless(err)
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("it has more than %d bytes", limit)
	}
	return b, nil
}

// pathless drops the path, which the line about it names already.
func pathless(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	if l, ok := errors.AsType[*os.LinkError](err); ok {
		return l.Err
	}
	return err
}

// grantWriter is a grant file on its way: a temporary file that was opened before
// anything was acquired, so that a lease which nobody could use is not taken.
type grantWriter struct {
	path  string
	force bool
	tmp   *os.File
}

// reserveGrantFile checks that the file at path can be made and opens what will
// become it. Nothing stands at path until commit.
func reserveGrantFile(path string, force bool) (*grantWriter, error) {
	const op = "acquire"
	info, err := os.Lstat(path)
	switch {
	case path == "" || strings.HasSuffix(path, "/"):
		return nil, badFile(op, path, "it names no file", "")
	case err == nil && info.IsDir():
		return nil, badFile(op, path, "it is a directory", "name a file in it")
	case err == nil && !force:
		return nil, badFile(op, path, "it exists, and may hold the only grant of a lease", "release it and remove the file, or overwrite it with --force")
	case err == nil && !info.Mode().IsRegular() && info.Mode()&fs.ModeSymlink == 0:
		return nil, badFile(op, path, "it is not a regular file", "")
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, badFile(op, path, pathless(err).Error(), "")
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".lastword-grant-*") // O_EXCL, 0600
	if err != nil {
		return nil, badFile(op, path, "its directory cannot be written to: "+pathless(err).Error(), "")
	}
	return &grantWriter{path: path, force: force, tmp: tmp}, nil
}

// commit makes the file, whole and durable, or leaves nothing.
func (w *grantWriter) commit(f grantFile) error {
	b, err := f.marshal()
	if err == nil {
		_, err = w.tmp.Write(b)
	}
	if err == nil {
		err = w.tmp.Sync()
	}
	if err == nil {
		err = w.name()
	}
	if err == nil {
		err = syncDir(filepath.Dir(w.path))
	}
	if err != nil {
		return fmt.Errorf("grant file %s: %w", w.path, pathless(err))
	}
	return nil
}

// name gives the file its name. A link, unlike a rename, replaces nothing that came
// there meanwhile.
func (w *grantWriter) name() error {
	if w.force {
		return os.Rename(w.tmp.Name(), w.path)
	}
	err := os.Link(w.tmp.Name(), w.path)
	if !errors.Is(err, syscall.EPERM) && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	// No links here: claim the name, then replace what was claimed.
	claim, err := os.OpenFile(w.path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(claim.Close(), os.Rename(w.tmp.Name(), w.path))
}

// discard removes what is left of the temporary file.
func (w *grantWriter) discard() {
	_ = w.tmp.Close()
	_ = os.Remove(w.tmp.Name())
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
