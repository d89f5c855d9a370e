package identity

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lastword/lastword"
)

// PolicyConfig is where a policy is read from.
type PolicyConfig struct {
	// File has the policy.
	File string
	// State is the file that remembers the highest generation that was in force, so
	// that a start does not go back either. It is made when it is not there.
	State string
	// Copy, if it is not "", is a second such file at another place: each of the two
	// makes up for one that is lost, or was put back.
	Copy string
	// Logger gets what [PolicyFile.Follow] meets; nil discards.
	Logger *slog.Logger
}

// PolicyFile is the policy of a file, as it last was when it was usable. It never goes
// back to a lower generation, and never takes other rules under the same one. Safe for
// concurrent use.
type PolicyFile struct {
	cfg     PolicyConfig
	current atomic.Pointer[Policy]

	reloading sync.Mutex
	seen      []stamp
	text      []byte
}

const opPolicy = "open policy"

// OpenPolicy reads the file. It fails with [lastword.CodeInvalid] for what is no policy
// or a step back, and with [lastword.CodeUnavailable] for what cannot be read or
// written.
func OpenPolicy(cfg PolicyConfig) (*PolicyFile, error) {
	if cfg.File == "" || cfg.State == "" || filepath.Clean(cfg.File) == filepath.Clean(cfg.State) {
		return nil, named(invalid("policy file %q and its state %q must be two files", cfg.File, cfg.State), opPolicy)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	p := &PolicyFile{cfg: cfg}
	if _, err := p.Reload(); err != nil {
		return nil, named(err, opPolicy)
	}
	return p, nil
}

// ReadPolicy reads and parses a file, and does nothing else with it.
func ReadPolicy(file string) (*Policy, error) {
	text, err := readFile(file, false)
	if err != nil {
		return nil, named(err, opPolicy)
	}
	p, err := ParsePolicy(text)
	return p, named(inFile(err, file), opPolicy)
}

// Policy is the one in force.
func (p *PolicyFile) Policy() *Policy { return p.current.Load() }

// Admit is [Policy.Admit] of the policy in force.
func (p *PolicyFile) Admit(owner string, resource lastword.Resource, class lastword.Class) (uint64, bool) {
	return p.Policy().Admit(owner, resource, class)
}

// May is [Policy.May] of the policy in force.
func (p *PolicyFile) May(who string, action Action, name string) bool {
	return p.Policy().May(who, action, name)
}

// Reload reads the file if it has changed, and puts its policy in force. If it cannot
// be used, the error says why, and the policy before stays in force; the next call
// tries again. The generation is remembered durably before it is in force.
func (p *PolicyFile) Reload() (changed bool, err error) {
	p.reloading.Lock()
	defer p.reloading.Unlock()
	stamps, err := stampsOf([]string{p.cfg.File})
	if err != nil || slices.Equal(stamps, p.seen) {
		return false, err
	}
	text, err := readFile(p.cfg.File, false)
	if err != nil {
		return false, err
	}
	if p.current.Load() != nil && bytes.Equal(text, p.text) {
		p.seen = stamps
		return false, nil
	}
	next, err := ParsePolicy(text)
	if err != nil {
		return false, inFile(err, p.cfg.File)
	}
	if err := p.remember(next); err != nil {
		return false, err
	}
	now := p.current.Load()
	p.current.Store(next)
	p.seen, p.text = stamps, text
	return now == nil || now.Digest() != next.Digest(), nil
}

func inFile(err error, file string) error {
	var e *lastword.Error
	if !errors.As(err, &e) {
		return err
	}
	out := *e
	out.Message = file + ": " + e.Message
	return &out
}

// memory is the content of the state file.
type memory struct {
	Generation uint64 `json:"generation"`
	Text       string `json:"digest"`
}

// remember refuses a step back, and makes a step forward durable.
func (p *PolicyFile) remember(next *Policy) error {
	was, whole, err := p.recall()
	if err != nil {
		return err
	}
	// Another process may have gone on: what is in force here counts as well.
	if now := p.current.Load(); now != nil && now.generation > was.Generation {
		was = memory{Generation: now.generation, Text: now.Digest().String()}
	}
	switch digest := next.Digest().String(); {
	case next.generation < was.Generation:
		e := invalid("policy %s has generation %d, and %d was in force: it does not go back", p.cfg.File, next.generation, was.Generation)
		e.Hint = fmt.Sprintf("give what shall hold generation %d or more", was.Generation+1)
		return e
	case next.generation == was.Generation && digest != was.Text:
		e := invalid("policy %s has other rules than were in force under generation %d", p.cfg.File, next.generation)
		e.Hint = fmt.Sprintf("every change takes a new generation: %d or more", was.Generation+1)
		return e
	case next.generation == was.Generation && whole:
		return nil
	default:
		for _, path := range p.cfg.states() {
			if err := writeMemory(path, memory{Generation: next.generation, Text: digest}); err != nil {
				return err
			}
		}
		return nil
	}
}

func (c PolicyConfig) states() []string {
	if c.Copy == "" {
		return []string{c.State}
	}
	return []string{c.State, c.Copy}
}

// recall is the highest generation that is remembered. whole says that it is at every
// place.
func (p *PolicyFile) recall() (was memory, whole bool, err error) {
	whole = true
	for i, path := range p.cfg.states() {
		m, err := readMemory(path)
		if err != nil {
			return m, false, err
		}
		if i > 0 && m != was {
			whole = false
		}
		if m.Generation > was.Generation {
			was = m
		}
	}
	if !whole && Remembers(p.cfg.Copy) {
		p.cfg.Logger.Warn("the generation of the policy is not the same at its two places; the higher one counts",
			"generation", was.Generation, "places", p.cfg.states())
	}
	return was, whole, nil
}

func readMemory(path string) (m memory, err error) {
	b, err := readFile(path, false)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return m, err
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	err = dec.Decode(&m)
	if err == nil {
		_, err = lastword.ParseDigest(m.Text)
	}
	if err != nil || m.Generation == 0 || m.Generation > MaxGeneration {
		e := invalid("%s does not say which generation of the policy was in force", path)
		e.Hint = "it is this program's own file; remove it only if you know that no higher generation was in force"
		return m, e
	}
	return m, nil
}

func writeMemory(path string, m memory) error {
	b, err := json.Marshal(m)
	if err == nil {
		err = replaceFile(path, append(b, '\n'))
	}
	if err != nil {
		return &lastword.Error{
			Code: lastword.CodeUnavailable, Message: "the generation of the policy cannot be remembered in " + path, Err: pathless(err),
			Hint: "the policy before stays in force",
		}
	}
	return nil
}

// Remembers reports whether a policy was ever in force beside this state file.
func Remembers(state string) bool {
	_, err := os.Lstat(state)
	return err == nil
}

// Follow reloads every interval until ctx ends; 0 is 1 s. A reason for which the file
// cannot be used is logged as an error once, if it is still there at the next look, and
// so is each change.
func (p *PolicyFile) Follow(ctx context.Context, interval time.Duration) {
	follow(ctx, interval, func() error {
		changed, err := p.Reload()
		if changed {
			p.cfg.Logger.Info("another policy is in force", "generation", p.Policy().generation, "digest", p.Policy().Digest().String())
		}
		return err
	}, func(err error) {
		p.cfg.Logger.Error("the policy file cannot be used; the policy before stays in force",
			"error", err, "generation", p.Policy().generation)
	})
}
