package lab

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	_ "modernc.org/sqlite" // the business database

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/sqlfence"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/rpc"
	"github.com/lastword/lastword/server"
)

// Domain is the domain of every experiment's authority.
const Domain = "lab"

// order is one line that an agent reads; answer is one that it writes.
type order struct {
	Do        string        `json:"do"` // serve, acquire, renew, release, hold, state, write, complete
	Store     string        `json:"store,omitempty"`
	Authority string        `json:"authority,omitempty"`
	Database  string        `json:"database,omitempty"`
	Resource  string        `json:"resource,omitempty"`
	Owner     string        `json:"owner,omitempty"`
	TTL       time.Duration `json:"ttl,omitempty"`
	Wait      time.Duration `json:"wait,omitempty"`
	Value     string        `json:"value,omitempty"`
	Operation string        `json:"operation,omitempty"`
	Mode      string        `json:"mode,omitempty"` // of a write: unchecked, query, fence-only
	Stop      bool          `json:"stop,omitempty"` // stop this process between status answer and transaction
	Die       bool          `json:"die,omitempty"`  // end this process between the writes and the commit
}

type answer struct {
	Event   string               `json:"event,omitempty"` // said on the way: "answered", "written"
	Address string               `json:"address,omitempty"`
	Fence   lastword.Token       `json:"fence,omitempty"`
	Verdict string               `json:"verdict,omitempty"`
	Code    string               `json:"code,omitempty"`
	Failed  string               `json:"failed,omitempty"` // what no experiment expects
	State   lastword.HolderState `json:"state,omitempty"`
}

// Agent is the inside of an experiment's processes: it reads orders, one JSON
// object a line, and answers each with one. It ends with its input. For
// `lastword lab agent`, which [Options.Agent] starts.
func Agent(ctx context.Context, in io.Reader, out io.Writer) error {
	a := &agent{out: json.NewEncoder(out)}
	defer a.close()
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var o order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return fmt.Errorf("lab agent: %w", err)
		}
		reply, err := a.do(ctx, o)
		if err != nil {
			reply.Failed = err.Error()
		}
		if err := a.out.Encode(reply); err != nil {
			return fmt.Errorf("lab agent: %w", err)
		}
	}
	return errors.Join(lines.Err(), a.stop())
}

type agent struct {
	out    *json.Encoder
	stop_  context.CancelFunc
	served chan error

	client *rpc.Client
	tenure lastword.Tenure
	holder *client.Client
	lease  *client.Lease // of hold
	db     *sql.DB
	gate   *sqlfence.Fence
	mode   string
	asked  *asking
}

func (a *agent) do(ctx context.Context, o order) (answer, error) {
	switch o.Do {
	case "serve":
		return a.serve(ctx, o)
	case "acquire":
		return a.acquire(ctx, o)
	case "write":
		return a.write(ctx, o)
	case "renew":
		_, err := a.client.Renew(ctx, a.tenure.TenureRef)
		return coded(answer{Fence: a.tenure.Fence}, err)
	case "release":
		return a.release(ctx)
	case "hold":
		return a.hold(ctx, o)
	case "state":
		return answer{Code: "OK", Fence: a.lease.Fence(), State: a.lease.State()}, nil
	case "complete":
		err := a.client.Complete(ctx, a.tenure.TenureRef, []byte(o.Value))
		return coded(answer{Fence: a.tenure.Fence}, err)
	}
	return answer{}, fmt.Errorf("unknown order %q", o.Do)
}

// coded puts a refusal into the answer; what is no refusal stays an error.
func coded(r answer, err error) (answer, error) {
	var refused *lastword.Error
	if err == nil {
		r.Code = "OK"
		return r, nil
	}
	if errors.As(err, &refused) && refused.Code != lastword.CodeInternal {
		r.Code = string(refused.Code)
		return r, nil
	}
	return r, err
}

func (a *agent) serve(ctx context.Context, o order) (answer, error) {
	s, err := server.Open(ctx, server.Config{Store: o.Store, Domain: Domain, GRPC: "127.0.0.1:0"})
	if err != nil {
		return answer{}, err
	}
	ctx, a.stop_ = context.WithCancel(ctx)
	a.served = make(chan error, 1)
	go func() { a.served <- s.Serve(ctx) }()
	return answer{Address: s.Addr().String()}, nil
}

// stop ends what serve began.
func (a *agent) stop() error {
	if a.stop_ == nil {
		return nil
	}
	a.stop_()
	a.stop_ = nil
	return <-a.served
}

func (a *agent) close() {
	if a.holder != nil {
		_ = a.holder.Close()
	}
	_ = a.stop()
	if a.gate != nil {
		_ = a.gate.Close()
	}
	if a.db != nil {
		_ = a.db.Close()
	}
	if a.client != nil {
		_ = a.client.Close()
	}
}

// acquire asks for one tenure and does not renew it: what a worker believes while
// it sleeps is not what this experiment is about.
func (a *agent) acquire(ctx context.Context, o order) (answer, error) {
	err := a.dial(o.Authority)
	if err != nil {
		return answer{}, err
	}
	a.tenure, err = a.client.Acquire(ctx, lastword.AcquireRequest{
		Resource: lastword.Resource(o.Resource), RequestID: o.Owner + "-" + o.Operation, Owner: o.Owner,
		TTL: o.TTL, Wait: o.Wait,
	})
	return coded(answer{Fence: a.tenure.Fence}, err)
}

func (a *agent) dial(addr string) (err error) {
	if a.client == nil {
		a.client, err = rpc.Dial(addr, rpc.ClientConfig{})
	}
	return err
}

// hold acquires as a program does: the lease is renewed, and its end is noticed.
func (a *agent) hold(ctx context.Context, o order) (answer, error) {
	err := a.dial(o.Authority)
	if err == nil && a.holder == nil {
		a.holder, err = client.New(a.client, client.Config{Owner: o.Owner})
	}
	if err != nil {
		return answer{}, err
	}
	l, err := a.holder.Acquire(ctx, lastword.Resource(o.Resource), client.AcquireOptions{
		TTL: o.TTL, Wait: o.Wait, RequestID: o.Owner + "-" + o.Operation,
	})
	if err != nil {
		return coded(answer{}, err)
	}
	a.lease = l
	return answer{Code: "OK", Fence: l.Fence(), State: l.State()}, nil
}

// release gives up what hold has, or else what acquire has.
func (a *agent) release(ctx context.Context) (answer, error) {
	if a.lease != nil {
		return coded(answer{Fence: a.lease.Fence(), State: a.lease.State()}, a.lease.Release(ctx))
	}
	return coded(answer{Fence: a.tenure.Fence}, a.client.Release(ctx, a.tenure.TenureRef))
}

func (a *agent) write(ctx context.Context, o order) (answer, error) {
	if a.db == nil {
		db, err := openBusiness(o.Database)
		if err != nil {
			return answer{}, err
		}
		a.db = db
	}
	if o.Mode == "unchecked" {
		_, err := a.db.ExecContext(ctx, setValue, o.Value, o.Resource)
		return answer{Fence: a.tenure.Fence, Verdict: Unchecked}, err
	}
	if err := a.openGate(ctx, o.Mode); err != nil {
		return answer{}, err
	}
	a.asked.stop = o.Stop
	m := lastword.Mutation{Grant: a.tenure.Grant, Operation: o.Operation, Payload: lastword.DigestOf([]byte(o.Value))}
	var receipt lastword.Receipt
	var err error
	if o.Die {
		err = a.dieBeforeCommit(ctx, m, o)
	} else {
		receipt, err = a.gate.ApplyMutation(ctx, a.tenure.Resource, m, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, setValue, o.Value, o.Resource)
			return err
		})
	}
	r, err := coded(answer{Fence: a.tenure.Fence}, err)
	r.Verdict = r.Code
	if r.Code == "OK" {
		r.Verdict = string(receipt.Verdict)
	}
	return r, err
}

// dieBeforeCommit writes record, receipt and value, and ends the process by
// SIGKILL instead of committing.
func (a *agent) dieBeforeCommit(ctx context.Context, m lastword.Mutation, o order) error {
	tx, err := a.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if _, err := a.gate.WithinMutation(ctx, tx, a.tenure.Resource, m); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	if _, err := tx.ExecContext(ctx, setValue, o.Value, o.Resource); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	if err := a.out.Encode(answer{Event: "written"}); err != nil {
		return err
	}
	return syscall.Kill(os.Getpid(), syscall.SIGKILL)
}

func (a *agent) openGate(ctx context.Context, mode string) error {
	if a.gate != nil && a.mode == mode {
		return nil
	}
	v, err := grant.NewVerifier(Domain, grant.FetchBundle(a.client.Bundle), grant.VerifierConfig{})
	if err != nil {
		return err
	}
	a.asked, a.mode = &asking{source: a.client, out: a.out}, mode
	a.gate, err = sqlfence.New(ctx, a.db, sqlfence.Config{Config: fence.Config{
		Domain: Domain, Verifier: v, Status: a.asked, Mode: fence.StatusMode(mode), StatusReuse: -1,
	}})
	return err
}

// asking stops this process, if it is told to, when it has heard the authority's
// answer and before it goes on.
type asking struct {
	source *rpc.Client
	out    *json.Encoder
	stop   bool
}

func (s *asking) Status(ctx context.Context, q lastword.StatusQuery) (lastword.Status, error) {
	st, err := s.source.Status(ctx, q)
	if !s.stop || err != nil {
		return st, err
	}
	s.stop = false
	if err := s.out.Encode(answer{Event: "answered"}); err != nil {
		return st, err
	}
	return st, syscall.Kill(os.Getpid(), syscall.SIGSTOP)
}
