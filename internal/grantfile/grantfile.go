// Package grantfile is the file in which one process leaves the grant of a lease for
// another: acquire for the commands that follow it, exec for its command. docs/cli.md
// has the schema.
//
// # Guarantees
//
// [Parse] is strict: every member once, no other one, and nothing that differs from
// what the grant itself says. What it accepts means one thing, and [File.Marshal]
// gives that again. Errors never repeat the grant.
//
// # Not guaranteed
//
// A file proves nothing: its grant is not verified here. Who reads it can write as
// its holder; to keep it private is the business of who stores it.
package grantfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
)

// MaxBytes is the most that a grant file may have.
const MaxBytes = 64 << 10

// File is the content of a grant file: the grant, and the names that renew, release
// and complete have to match. The zero value is none.
type File struct {
	ref    lastword.TenureRef
	grant  string
	claims grant.Unverified // of grant, where it was parsed; believed by nobody
}

// New is the file of a tenure.
func New(ref lastword.TenureRef, signed string) File { return File{ref: ref, grant: signed} }

// Ref is the tenure that the file names. The authority decides whether it is one.
func (f File) Ref() lastword.TenureRef { return f.ref }

// Grant is the signed grant, compact JWS.
func (f File) Grant() string { return f.grant }

// Claims is what the grant of a parsed file says. Nobody has verified it.
func (f File) Claims() grant.Unverified { return f.claims }

// Marshal is the file as bytes.
func (f File) Marshal() ([]byte, error) {
	b, err := json.MarshalIndent(struct {
		Version   int    `json:"version"`
		Resource  string `json:"resource"`
		Owner     string `json:"owner"`
		RequestID string `json:"request_id"`
		LeaseID   string `json:"lease_id"`
		Fence     string `json:"fence"`
		Grant     string `json:"grant"`
	}{1, string(f.ref.Resource), f.ref.Owner, f.ref.RequestID, f.ref.LeaseID, f.ref.Fence.String(), f.grant}, "", "  ")
	return append(b, '\n'), err
}

// Parse reads a file. Its errors say what is wrong with "it".
func Parse(b []byte) (File, error) {
	if len(bytes.TrimSpace(b)) == 0 {
		return File{}, errors.New("it is empty")
	}
	if len(b) > MaxBytes {
		return File{}, fmt.Errorf("it has more than %d bytes", MaxBytes)
	}
	m, err := decode(b)
	if err != nil {
		return File{}, err
	}
	claims, err := grant.Inspect(m.grant)
	if err != nil {
		return File{}, fmt.Errorf("the grant in it is broken: %s", said(err))
	}
	fence, err := lastword.ParseToken(m.fence)
	if err != nil {
		return File{}, errors.New(said(err))
	}
	c := claims.Claims
	f := File{
		ref:   lastword.TenureRef{Resource: c.Resource, Owner: c.Owner, RequestID: c.RequestID, LeaseID: c.LeaseID, Fence: c.Fence},
		grant: m.grant, claims: claims,
	}
	named := lastword.TenureRef{Resource: lastword.Resource(m.resource), Owner: m.owner, RequestID: m.requestID, LeaseID: m.leaseID, Fence: fence}
	if named != f.ref {
		return File{}, fmt.Errorf("it is not about the tenure that its grant is about (resource %s, fence %s)", c.Resource, c.Fence.Text())
	}
	return f, nil
}

// said is an error's message without its code and operation.
func said(err error) string {
	e, ok := errors.AsType[*lastword.Error](err)
	switch {
	case !ok:
		return err.Error()
	case e.Err != nil:
		return e.Message + ": " + e.Err.Error()
	}
	return e.Message
}

// members are those of the one flat object.
type members struct {
	resource, owner, requestID, leaseID, fence, grant string
}

// decode reads it. encoding/json alone would take a member twice, and one in other
// letters.
func decode(b []byte) (members, error) {
	var m members
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return m, errors.New("it is no JSON object")
	}
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return m, broken(err)
		}
		if seen[name] {
			return m, fmt.Errorf("it has the member %q twice", clip(name))
		}
		seen[name] = true
		if err := m.read(d, name); err != nil {
			return m, err
		}
	}
	if _, err := d.Token(); err != nil {
		return m, broken(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return m, errors.New("there is something behind its JSON object")
	}
	for _, name := range []string{"version", "resource", "owner", "request_id", "lease_id", "fence", "grant"} {
		if !seen[name] {
			return m, fmt.Errorf("it lacks the member %q", name)
		}
	}
	return m, nil
}

// read takes the value of one member.
func (m *members) read(d *json.Decoder, name string) error {
	target, isText := map[string]*string{
		"resource": &m.resource, "owner": &m.owner, "request_id": &m.requestID, "lease_id": &m.leaseID, "grant": &m.grant,
	}[name]
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
			m.fence = v
			return nil
		}
	case json.Number:
		switch {
		case name == "version" && v == "1":
			return nil
		case name == "version":
			return fmt.Errorf("it has version %s, and this program knows version 1", clip(string(v)))
		case name == "fence":
			m.fence = string(v) // what we write is a string
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

func clip(s string) string {
	const shown = 64
	if len(s) > shown {
		return strings.ToValidUTF8(s[:shown], "") + "…"
	}
	return s
}
