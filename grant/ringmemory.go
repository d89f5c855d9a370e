package grant

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"github.com/lastword/lastword"
)

// maxRemembered bounds how many ids of revoked keys are remembered: the newest.
const maxRemembered = 4096

// ringMark is what a ring must never go back behind. It is kept at another place than the
// ring ([RingConfig].Memory).
type ringMark struct {
	Version  int    `json:"version"`
	Domain   string `json:"domain"`
	Sequence uint64 `json:"sequence"`
	Current  uint32 `json:"current_epoch"`
	// Minimum counts one that waits for its epoch, too.
	Minimum uint32 `json:"minimum_epoch"`
	// Durable: the ring had a directory.
	Durable bool     `json:"durable"`
	Revoked []string `json:"revoked"`
}

// floor is the minimum epoch, or the one that waits for its epoch.
func (f *ringFile) floor() uint32 { return max(f.Minimum, f.NextMinimum) }

// with is what is to be remembered once f is in use.
func (m ringMark) with(f *ringFile, durable bool) ringMark {
	m.Version, m.Domain = ringVersion, f.Domain
	m.Sequence, m.Current, m.Minimum = max(m.Sequence, f.Sequence), max(m.Current, f.Current), max(m.Minimum, f.floor())
	m.Durable = m.Durable || durable
	all := []string{}
	for _, kid := range append(slices.Clone(m.Revoked), f.Revoked...) {
		if !slices.Contains(all, kid) {
			all = append(all, kid)
		}
	}
	m.Revoked = all[max(0, len(all)-maxRemembered):]
	return m
}

func (m ringMark) equal(o ringMark) bool {
	return m.Domain == o.Domain && m.Sequence == o.Sequence && m.Current == o.Current && m.Minimum == o.Minimum &&
		m.Durable == o.Durable && slices.Equal(m.Revoked, o.Revoked)
}

// against says why f is not what is remembered, or a later state; "" if it is.
func (m ringMark) against(f *ringFile, durable bool) string {
	switch {
	case m.Domain != f.Domain:
		return fmt.Sprintf("the ring is of domain %q, and what is remembered of domain %q", f.Domain, m.Domain)
	case m.Durable && !durable:
		return fmt.Sprintf("the key ring is gone: it had reached sequence %d", m.Sequence)
	case f.Sequence > 0 && f.Sequence < m.Sequence:
		return fmt.Sprintf("the key ring went back: it has sequence %d and had reached %d", f.Sequence, m.Sequence)
	case f.Sequence > 0 && f.floor() < m.Minimum:
		return fmt.Sprintf("the key ring went back: its minimum epoch is %d and was %d", f.floor(), m.Minimum)
	}
	for _, k := range f.Keys {
		if slices.Contains(m.Revoked, k.ID) {
			return fmt.Sprintf("the key ring went back: it has the key %s, which was revoked", k.ID)
		}
	}
	return ""
}

// wentBack is the refusal of a ring that is not what is remembered.
func (r *Ring) wentBack(why string) error {
	return &lastword.Error{
		Code: lastword.CodeFenceRegression, Op: opRing, Message: r.dir + ": " + why + " (" + r.memory + ")",
		Hint: "put the newest copy of the ring back; if it is lost, start once with 'lastword serve --new-key': grants that are alive then stop verifying",
	}
}

// recall is what is remembered; nil is nothing.
func (r *Ring) recall() (*ringMark, error) {
	if r.memory == "" {
		return nil, nil
	}
	file, err := os.OpenFile(r.memory, os.O_RDONLY|syscall.O_NONBLOCK, 0) // not to hang on a named pipe
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, r.unremembered(err)
	}
	defer file.Close() // it was only read
	info, err := file.Stat()
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxRingFile) {
		err = errors.New("it is no regular file, or too large")
	}
	var b []byte
	if err == nil {
		b, err = io.ReadAll(io.LimitReader(file, maxRingFile))
	}
	var m ringMark
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(b))
		d.DisallowUnknownFields() // a later version's, which this one would lose
		if d.Decode(&m) != nil || m.Version != ringVersion || m.Sequence > MaxNumber || m.Minimum > lastword.MaxEpoch || m.Current > lastword.MaxEpoch {
			err = errors.New("it is not what this version keeps of a ring")
		}
	}
	if err != nil {
		return nil, r.unremembered(err)
	}
	return &m, nil
}

func (r *Ring) unremembered(err error) error {
	return &lastword.Error{
		Code: lastword.CodeUnavailable, Op: opRing, Message: r.memory + ": what the key ring must not go back behind cannot be kept there", Err: pathless(err),
		Hint: "make it readable and writable for this process, or put the right file back",
	}
}

// looksRight refuses a ring that is not what is remembered. It writes nothing.
func (r *Ring) looksRight(f *ringFile, durable bool) error {
	m, err := r.recall()
	if err != nil || m == nil {
		return err
	}
	if why := m.against(f, durable); why != "" {
		return r.wentBack(why)
	}
	return nil
}

// remember makes the memory know a state, durably, before anybody uses or publishes it.
// It refuses one that is not what is remembered.
func (r *Ring) remember(f *ringFile, durable bool) error {
	if r.memory == "" || f.Sequence == 0 {
		return nil
	}
	lock, err := os.OpenFile(r.memory+".lock", os.O_CREATE|os.O_RDWR, keyMode)
	if err != nil {
		return r.unremembered(err)
	}
	defer lock.Close() // the lock goes with it
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return r.unremembered(err)
	}
	m, err := r.recall()
	if err != nil {
		return err
	}
	if m == nil {
		m = &ringMark{}
	} else if why := m.against(f, durable); why != "" {
		return r.wentBack(why)
	}
	next := m.with(f, durable)
	if next.equal(*m) {
		return nil
	}
	b, err := json.MarshalIndent(next, "", "  ")
	if err == nil {
		err = replaceFile(r.memory, append(b, '\n'), keyMode)
	}
	if err != nil {
		return r.unremembered(err)
	}
	return nil
}

// MoveMemory makes the memory of a ring at the path to know what the one at from knows
// ([RingConfig].Memory), durably. It leaves from as it is; one that is not there is
// nothing to move.
func MoveMemory(from, to string) error {
	source, target := &Ring{dir: from, memory: from}, &Ring{dir: to, memory: to}
	m, err := source.recall()
	if err != nil || m == nil {
		return err
	}
	f := ringFile{Domain: m.Domain, Sequence: m.Sequence, Current: m.Current, Minimum: m.Minimum, Revoked: m.Revoked}
	return target.remember(&f, m.Durable)
}

// BeginRing begins a ring above what is remembered of one that is lost or went back, for
// an operator: with a new key, a larger sequence, and the epochs and revoked keys that
// are remembered, or that the ring still knows. Of the keys before, that of First
// included, none is believed any more. Nothing else is changed if there is no memory: it
// fails with [lastword.CodeInvalid].
func BeginRing(cfg RingConfig) (*Ring, error) {
	r := &Ring{dir: cfg.Dir, oneZone: cfg.OneTrustZone, memory: cfg.Memory}
	m, err := r.recall()
	switch {
	case err != nil:
		return nil, err
	case m == nil:
		return nil, r.bad("nothing is remembered of a ring", "open it")
	case m.Domain != cfg.Domain:
		return nil, r.wentBack(fmt.Sprintf("what is remembered is of domain %q", m.Domain))
	}
	key, err := NewKey()
	if err != nil {
		return nil, err
	}
	unlock, err := r.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	old, _, err := r.readFile()
	if err != nil {
		return nil, err
	}
	f := m.begin(key, old)
	if first := cfg.First; first.k != nil && !f.knows(first.ID()) {
		f.Past = append(f.Past, first.ID())
	}
	s, err := r.assemble(f, map[string]Key{key.ID(): key})
	if err != nil {
		return nil, err
	}
	if err := r.save(s, &ringState{}); err != nil {
		return nil, r.failed("change", err)
	}
	if err := r.remember(&s.file, true); err != nil {
		return nil, err
	}
	r.state.Store(s)
	return r, nil
}

// begin is the first state of a ring with one key, above m and old, which may be nil.
func (m ringMark) begin(key Key, old *ringFile) ringFile {
	if old == nil || old.Domain != m.Domain {
		old = &ringFile{Domain: m.Domain}
	}
	m = m.with(old, true)
	f := ringFile{
		Domain: m.Domain, Sequence: m.Sequence + 1, Current: m.Current, Hint: old.Hint, Signing: key.ID(),
		Keys:    []ringKey{{ID: key.ID(), Alg: key.Algorithm(), First: m.Current, Used: true}},
		Revoked: m.Revoked, Past: slices.Clone(old.Past),
	}
	f.raise(m.Minimum)
	f.NextEpoch = max(f.NextMinimum, old.NextEpoch)
	for _, k := range old.Keys {
		if !f.knows(k.ID) {
			f.Past = append(f.Past, k.ID)
		}
	}
	return f
}
