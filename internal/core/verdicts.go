package core

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"

	"github.com/lastword/lastword"
)

//go:embed testdata/verdicts.tsv
var verdicts string

// VerdictRow is one decision of a guarded place: what is stored, what is known, what
// is attempted and what must come of it. The table is data, written from the protocol;
// a kit drives an engine that decides by itself through every row.
type VerdictRow struct {
	// Name says what the row is about, Rule where it is written.
	Name, Rule string
	// Setup are the steps that bring a fresh place into the stored state, at the
	// place's one resource. A synthetic row has none: no engine gets there by itself.
	Setup     []VerdictStep
	Synthetic bool

	// Stored and Known are what the place has before the attempt.
	Stored FenceRecord
	Known  KnownOperation
	// Attempt is a write for [Admit] or, with Advance, a registration for [Advance].
	Advance bool
	Attempt Attempt

	// Want is the decision. Its Record is the record after, also if nothing is
	// written (Write not set); then it is Stored.
	Want Decision
}

// StepKind is a kind of [VerdictStep].
type StepKind string

// The kinds of steps.
const (
	StepWrite   StepKind = "write"   // Attempt is admitted
	StepAdvance StepKind = "advance" // Attempt is registered
	StepClose   StepKind = "close"   // the record is closed with the authority's Next
	StepFreeze  StepKind = "freeze"
	StepPrune   StepKind = "prune"   // the receipt of Operation becomes a tombstone
	StepLose    StepKind = "lose"    // the record is deleted, the receipts stay
	StepRestore StepKind = "restore" // the record is closed with Next, and its window opened at Mark
	StepReopen  StepKind = "reopen"  // a person closes the window
)

// VerdictStep is one step of a setup.
type VerdictStep struct {
	Kind      StepKind
	Attempt   Attempt
	Next      lastword.Token
	Operation string
	Mark      uint64
}

// VerdictTable is the whole table, in the order of the file. An error means that the
// file is not well formed.
func VerdictTable() ([]VerdictRow, error) {
	var rows []VerdictRow
	setups := map[string]string{}
	header := 0
	number := 0
	for line := range strings.SplitSeq(verdicts, "\n") {
		number++
		cells := strings.Split(line, "\t")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "@") && len(cells) == 2:
			setups[cells[0]] = unfold(cells[1], setups)
		case header == 0:
			header = len(cells)
		case len(cells) != header || header != verdictCells:
			return nil, fmt.Errorf("verdicts.tsv:%d: %d cells, want %d", number, len(cells), verdictCells)
		default:
			row, err := parseRow(cells, setups)
			if err != nil {
				return nil, fmt.Errorf("verdicts.tsv:%d: %w", number, err)
			}
			rows = append(rows, row)
		}
	}
	return rows, nil
}

const verdictCells = 13

// unfold replaces the names of setups by what they stand for.
func unfold(cell string, setups map[string]string) string {
	steps := strings.Split(cell, " ; ")
	for i, step := range steps {
		if whole, ok := setups[step]; ok {
			steps[i] = whole
		}
	}
	return strings.Join(steps, " ; ")
}

func parseRow(cells []string, setups map[string]string) (VerdictRow, error) {
	p := rowParser{policy: Policy(cells[2]), mode: StatusMode(cells[3])}
	row := VerdictRow{Name: cells[0], Rule: cells[1], Synthetic: cells[4] == "synthetic"}
	if !row.Synthetic && cells[4] != "-" {
		for step := range strings.SplitSeq(unfold(cells[4], setups), " ; ") {
			row.Setup = append(row.Setup, p.step(step))
		}
	}
	row.Stored = p.record(cells[5])
	last := p.step(cells[7])
	row.Advance, row.Attempt = last.Kind == StepAdvance, last.Attempt
	row.Known = p.known(cells[6], row.Attempt.Payload)
	row.Want = p.want(cells[8:], row.Stored)
	return row, p.err
}

// rowParser reads the cells of one row; its first failure stays.
type rowParser struct {
	policy Policy
	mode   StatusMode
	err    error
}

func (p *rowParser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
}

func (p *rowParser) known(cell string, payload lastword.Digest) KnownOperation {
	switch cell {
	case "none":
		return KnownOperation{}
	case "same":
		return KnownOperation{Receipt: true, Payload: payload}
	case "other":
		// The first payload of every setup is p.
		return KnownOperation{Receipt: true, Payload: lastword.DigestOf([]byte("p"))}
	case "tomb":
		return KnownOperation{Tombstone: true}
	}
	p.fail("known %q", cell)
	return KnownOperation{}
}

// want reads verdict, why, after, seq and marks.
func (p *rowParser) want(cells []string, stored FenceRecord) Decision {
	d := Decision{Why: dash(cells[1]), Record: stored}
	if again, ok := strings.CutPrefix(cells[0], "again:"); ok {
		d.Again = Again(again)
	} else {
		d.Verdict = lastword.Verdict(cells[0])
	}
	if cells[2] != "=" {
		d.Write, d.Record = true, p.record(cells[2])
	}
	if cells[3] != "-" {
		d.Seq = p.number(cells[3])
	}
	words := strings.Fields(cells[4])
	for len(words) > 0 {
		word := words[0]
		words = words[1:]
		switch {
		case word == "-":
		case word == "freeze":
			d.Freeze = true
		case word == "shadow":
			d.Shadow = true
		case word == "quarantine":
			d.Quarantine = true
		case word == "replay" && len(words) > 0:
			d.ReplayOf, words = words[0], words[1:]
		default:
			p.fail("mark %q", word)
		}
	}
	return d
}

func (p *rowParser) record(cell string) FenceRecord {
	words := strings.Fields(cell)
	if len(words) == 0 {
		p.fail("an empty record")
		return FenceRecord{}
	}
	if words[0] == "-" {
		rec := FenceRecord{}
		for word, value := range p.pairs(words[1:]) {
			switch word {
			case "lost":
				rec.Lost = true
			case "shadow":
				rec.Shadow = true
			case "window":
				rec.Restored = p.number(value)
			default:
				p.fail("no record: %q", word)
			}
		}
		return rec
	}
	rec := FenceRecord{Exists: true, Policy: p.policy, Status: p.mode}
	rec.Fence, rec.LeaseID, rec.GrantDigest = p.tenure(words[0])
	if rec.LeaseID != "" {
		rec.Root = digest("R")
	}
	for word, value := range p.pairs(words[1:]) {
		switch word {
		case "seq":
			rec.LastSeq = p.number(value)
		case "op":
			rec.LastOperation = value
		case "pay":
			rec.LastPayload = digest(value)
		case "root":
			rec.Root = digest(value)
		case "policy":
			rec.Policy = Policy(dash(value))
		case "mode":
			rec.Status = StatusMode(dash(value))
		case "frozen":
			rec.Frozen = true
		case "shadow":
			rec.Shadow = true
		case "imported":
			rec.Imported = true
		case "unraised":
			rec.Unraised = true
		case "window":
			rec.Restored = p.number(value)
		case "mark":
			rec.Heard = p.mark(value)
		case "step":
			rec.Step = p.number(value)
		case "bundle":
			rec.BundleSequence = p.number(value)
		case "minepoch":
			rec.MinEpoch = uint32(p.number(value))
		case "mingen":
			rec.MinPolicyGeneration = p.number(value)
		default:
			p.fail("record: %q", word)
		}
	}
	return rec
}

func (p *rowParser) step(text string) VerdictStep {
	words := strings.Fields(text)
	if len(words) == 0 {
		p.fail("an empty step")
		return VerdictStep{}
	}
	s := VerdictStep{Kind: StepKind(words[0])}
	switch {
	case (s.Kind == StepWrite || s.Kind == StepAdvance) && len(words) > 1:
		s.Attempt = p.attempt(words[1:])
	case s.Kind == StepClose && len(words) == 2:
		s.Next = p.fence(words[1])
	case s.Kind == StepRestore && len(words) == 3:
		s.Next, s.Mark = p.fence(words[1]), p.number(words[2])
	case s.Kind == StepPrune && len(words) == 2:
		s.Operation = words[1]
	case (s.Kind == StepFreeze || s.Kind == StepLose || s.Kind == StepReopen) && len(words) == 1:
	default:
		p.fail("step %q", text)
	}
	return s
}

func (p *rowParser) attempt(words []string) Attempt {
	a := Attempt{
		Operation: "z", Payload: digest("p"), Root: digest("R"), Policy: p.policy, Status: p.mode,
		Heard: Heard{Mode: p.mode},
	}
	if p.mode != FenceOnly {
		a.Heard.State = lastword.StateHeld
	}
	a.Heard.AfterLook = p.mode == Query
	a.Fence, a.LeaseID, a.GrantDigest = p.tenure(words[0])
	for word, value := range p.pairs(words[1:]) {
		switch word {
		case "seq":
			a.Seq = p.number(value)
		case "op":
			a.Operation = value
		case "pay":
			a.Payload = digest(value)
		case "root":
			a.Root = digest(value)
		case "policy":
			a.Policy = Policy(dash(value))
		case "mode":
			a.Status = StatusMode(dash(value))
		case "heard":
			mode, state, _ := strings.Cut(value, " ")
			a.Heard.Mode, a.Heard.State = StatusMode(mode), lastword.State(dash(state))
		case "imported":
			a.Imported = true
		case "step":
			a.Step = p.number(value)
		case "mark":
			a.Heard.Mark = p.mark(value)
		case "early":
			a.Heard.AfterLook = false
		case "next":
			a.Heard.NextFence = p.fence(value)
		case "bundle":
			a.BundleSequence = p.number(value)
		case "minepoch":
			a.MinEpoch = uint32(p.number(value))
		case "gen":
			a.PolicyGeneration = p.number(value)
		case "mingen":
			a.MinPolicyGeneration = p.number(value)
		default:
			p.fail("attempt: %q", word)
		}
	}
	return a
}

// pairs yields each word with what follows it.
func (p *rowParser) pairs(words []string) func(yield func(word, value string) bool) {
	return func(yield func(word, value string) bool) {
		for len(words) > 0 {
			word, takes := words[0], 1
			switch word {
			case "frozen", "early", "imported", "unraised", "lost", "shadow":
				takes = 0
			case "heard":
				takes = 2
			}
			if len(words) <= takes {
				p.fail("%q wants more", word)
				return
			}
			value := strings.Join(words[1:1+takes], " ")
			words = words[1+takes:]
			if !yield(word, value) {
				return
			}
		}
	}
}

// tenure reads "41/A". The grant's digest is made up from it.
func (p *rowParser) tenure(word string) (lastword.Token, string, lastword.Digest) {
	number, lease, ok := strings.Cut(word, "/")
	if !ok {
		p.fail("tenure %q", word)
	}
	fence := p.fence(number)
	if lease == "-" {
		return fence, "", lastword.Digest{}
	}
	return fence, lease, digest(fence.String() + "/" + lease)
}

// fence reads a decimal number or "epoch.counter". Numbers that are no fence are read
// too: the table shows what becomes of them.
func (p *rowParser) fence(word string) lastword.Token {
	epoch, counter, ok := strings.Cut(word, ".")
	if !ok {
		return lastword.Token(p.number(word))
	}
	first, _ := lastword.MakeToken(0, lastword.MaxCounter)
	return lastword.Token(p.number(epoch))*(first+1) + lastword.Token(p.number(counter))
}

// mark reads "epoch.revision".
func (p *rowParser) mark(word string) Mark {
	epoch, revision, ok := strings.Cut(word, ".")
	if !ok {
		p.fail("mark %q", word)
	}
	return Mark{Epoch: uint32(p.number(epoch)), Revision: p.number(revision)}
}

func (p *rowParser) number(word string) uint64 {
	n, err := strconv.ParseUint(word, 10, 64)
	if err != nil {
		p.fail("number %q", word)
	}
	return n
}

func dash(word string) string {
	if word == "-" {
		return ""
	}
	return word
}

func digest(word string) lastword.Digest {
	if word == "-" {
		return lastword.Digest{}
	}
	return lastword.DigestOf([]byte(word))
}
