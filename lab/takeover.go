package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/rpc"
)

// Options of an experiment.
type Options struct {
	// Agent is the command that runs [Agent]: the program and its arguments.
	Agent []string
	// Fence says whether the resource checks.
	Fence bool
	// Progress, if not nil, hears of every event as it happens.
	Progress func(Event)
}

const (
	takeoverTTL  = 500 * time.Millisecond // of the tenures that are to lapse
	takeoverWait = 20 * time.Second       // for whoever takes over
	workTTL      = time.Minute            // of the tenures that are not
)

// The documents, one for each part of the experiment.
const (
	docTakeover  = "doc/report"
	docGapFence  = "doc/gap-fence-only"
	docGapQuery  = "doc/gap-query"
	docCrash     = "doc/crash"
	oldValue     = "old"
	newValue     = "new"
	checkedMode  = "query"
	fenceOnly    = "fence-only"
	nothingCheck = "unchecked"
)

// Takeover runs the experiment of R33: A acquires and falls asleep, B takes over at
// the deadline, writes and completes, A wakes up, writes and tries to complete.
func Takeover(ctx context.Context, o Options) (r Result, err error) {
	b, err := newBench(ctx, o)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	r = Result{Experiment: "takeover", Fence: "off"}
	if o.Fence {
		r.Fence = "on"
	}
	if err := b.takeover(ctx, &r); err != nil {
		return r, err
	}
	if o.Fence {
		err = errors.Join(b.gaps(ctx, &r), b.crash(ctx, &r))
		r.Boundary = boundaries()
	}
	r.Events = b.events
	return r, err
}

// bench is what one run works with: a directory, an authority in a process of its
// own, the business database and whatever agents were started.
type bench struct {
	opts      Options
	dir       string
	authority *process
	address   string
	client    *rpc.Client
	business  *business
	agents    []*process
	part      string
	events    []Event
}

func newBench(ctx context.Context, o Options) (b *bench, err error) {
	if len(o.Agent) == 0 {
		return nil, errors.New("lab: no agent command")
	}
	b = &bench{opts: o}
	opened := b // b is nil when this fails
	if b.dir, err = os.MkdirTemp("", "lastword-lab-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, opened.close())
		}
	}()
	b.business, err = newBusiness(ctx, filepath.Join(b.dir, "business.db"), docTakeover, docGapFence, docGapQuery, docCrash)
	if err != nil {
		return nil, err
	}
	if b.authority, err = b.start("authority"); err != nil {
		return nil, err
	}
	served, err := b.authority.call(ctx, order{Do: "serve", Store: "sqlite:" + filepath.Join(b.dir, "authority.db")})
	if err != nil {
		return nil, err
	}
	b.address = served.Address
	b.client, err = rpc.Dial(b.address, rpc.ClientConfig{})
	return b, err
}

func (b *bench) start(name string) (*process, error) {
	p, err := start(name, b.opts.Agent)
	if err == nil {
		b.agents = append(b.agents, p)
	}
	return p, err
}

// close ends the agents, the newest first, and removes the directory.
func (b *bench) close() error {
	var errs []error
	if b.client != nil {
		errs = append(errs, b.client.Close())
	}
	for i := len(b.agents) - 1; i >= 0; i-- {
		errs = append(errs, b.agents[i].close())
	}
	if b.business != nil {
		errs = append(errs, b.business.close())
	}
	return errors.Join(append(errs, os.RemoveAll(b.dir))...)
}

func (b *bench) note(process, did, heard string) {
	e := Event{Part: b.part, Process: process, Did: did, Heard: heard}
	b.events = append(b.events, e)
	if b.opts.Progress != nil {
		b.opts.Progress(e)
	}
}

// acquire lets p acquire a document; wait lets it take over at the deadline.
func (b *bench) acquire(ctx context.Context, p *process, doc string, ttl, wait time.Duration) error {
	operation := fmt.Sprint(len(b.events))
	p.request = p.name + "-" + operation // as the agent makes it
	a, err := p.call(ctx, order{
		Do: "acquire", Authority: b.address, Resource: doc, Owner: p.name,
		Operation: operation, TTL: ttl, Wait: wait,
	})
	if err != nil {
		return err
	}
	did := "acquires " + doc
	if wait > 0 {
		did = "waits for " + doc + " and takes over at the deadline"
	}
	b.note(p.name, did, granted(a))
	if a.Code != "OK" {
		return fmt.Errorf("%s did not get %s: %s", p.name, doc, a.Code)
	}
	return nil
}

func granted(a answer) string {
	if a.Code != "OK" {
		return a.Code
	}
	return "fence " + a.Fence.String()
}

func (b *bench) pause(p *process) error {
	if err := p.pause(); err != nil {
		return err
	}
	b.note(p.name, "is stopped (SIGSTOP)", "asleep")
	return nil
}

func (b *bench) resume(p *process) error {
	if err := p.resume(); err != nil {
		return err
	}
	b.note(p.name, "is continued (SIGCONT)", "awake")
	return nil
}

func (b *bench) write(ctx context.Context, p *process, doc, value, mode string) (answer, error) {
	a, err := p.call(ctx, b.writing(p, doc, value, mode))
	if err != nil {
		return a, err
	}
	b.note(p.name, fmt.Sprintf("writes %q to %s with fence %d", value, doc, a.Fence), a.Verdict)
	return a, nil
}

func (b *bench) writing(p *process, doc, value, mode string) order {
	return order{
		Do: "write", Database: b.business.path, Resource: doc, Value: value,
		Operation: fmt.Sprintf("%s-%d", p.name, len(b.events)), Mode: mode,
	}
}

func (b *bench) complete(ctx context.Context, p *process, result string) (answer, error) {
	a, err := p.call(ctx, order{Do: "complete", Value: result})
	if err != nil {
		return a, err
	}
	b.note(p.name, fmt.Sprintf("reports the work done: %q", result), a.Code)
	return a, nil
}

// pair starts the two workers of one part.
func (b *bench) pair() (a, c *process, err error) {
	if a, err = b.start("A"); err != nil {
		return nil, nil, err
	}
	c, err = b.start("B")
	return a, c, err
}

func (b *bench) takeover(ctx context.Context, r *Result) error {
	b.part = "takeover"
	mode := nothingCheck
	if b.opts.Fence {
		mode = checkedMode
	}
	old, young, err := b.pair()
	if err != nil {
		return err
	}
	if err := b.acquire(ctx, old, docTakeover, takeoverTTL, 0); err != nil {
		return err
	}
	if err := b.pause(old); err != nil {
		return err
	}
	if err := b.acquire(ctx, young, docTakeover, workTTL, takeoverWait); err != nil {
		return err
	}
	if _, err := b.write(ctx, young, docTakeover, newValue, mode); err != nil {
		return err
	}
	if _, err := b.complete(ctx, young, newValue); err != nil {
		return err
	}
	if err := b.resume(old); err != nil {
		return err
	}
	late, err := b.write(ctx, old, docTakeover, oldValue, mode)
	if err != nil {
		return err
	}
	completion, err := b.complete(ctx, old, oldValue)
	if err != nil {
		return err
	}
	r.LateWrite = LateWrite{Owner: old.name, Fence: late.Fence.String(), Verdict: late.Verdict}
	r.LateCompletion = LateCompletion{Owner: old.name, Code: completion.Code}
	return b.tables(ctx, r, young)
}

// tables reads the two tables as they stand, the task table where it says what
// became of the newer worker's attempt.
func (b *bench) tables(ctx context.Context, r *Result, young *process) error {
	task, err := b.client.Status(ctx, lastword.StatusQuery{Resource: docTakeover, Owner: young.name, RequestID: young.request})
	if err != nil {
		return err
	}
	r.Schedule = Schedule{
		Resource: docTakeover, State: string(task.State), Owner: task.Holder.Owner, Fence: task.Holder.Fence.String(),
		Result: string(task.AskedResult),
	}
	r.Business.Resource = docTakeover
	if r.Business.Value, err = b.business.value(ctx, docTakeover); err != nil {
		return err
	}
	rec, err := b.business.record(ctx, docTakeover)
	if rec.Exists {
		r.Business.Fence = rec.Fence.String()
	}
	return err
}
