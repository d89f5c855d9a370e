package main

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/rpc"
	wire "github.com/lastword/lastword/rpc/lastword/v1"
)

// object is a JSON object, as the wire's JSON has it.
type object = map[string]any

// door is one way to call an authority. Requests and answers are the schema's, as
// JSON; a refusal comes back as its object.
type door interface {
	call(ctx context.Context, op string, request object) (answer, refusal object, err error)
	// watch gives what is shown until ctx ends.
	watch(ctx context.Context, prefix string, show func(object)) error
}

// served is a real authority process with both doors open.
type served struct {
	grpc, http string
}

// serveIn starts "lastword serve" on files in dir.
func serveIn(t *testing.T, dir string) (s served, stop func()) {
	t.Helper()
	cmd := exec.Command("lastword", "serve", "-o", "json", "--store", "sqlite:s.db", "--domain", "demo", "--grpc", "127.0.0.1:0")
	var stderr bytes.Buffer
	cmd.Dir, cmd.Stderr = dir, &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	watchdog := time.AfterFunc(2*patience, func() { _ = cmd.Process.Kill() })
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		defer watchdog.Stop()
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("serve: %v: %s", err, stderr.String())
		}
	}
	t.Cleanup(stop)
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	var ready readiness
	if err != nil || json.Unmarshal(line, &ready) != nil || ready.HTTP == "" {
		t.Fatalf("serve: %v: %s%s", err, line, stderr.String())
	}
	return served{ready.GRPC, ready.HTTP}, stop
}

// The largest fences that a session of two grants can have, revisions just as large (a
// grant has no room for larger ones), and one that no floating-point number holds.
const (
	lastEpoch   = 1<<20 - 1
	firstFence  = "9007199254740990"
	secondFence = "9007199254740991" // 2^53 - 1
	revision    = 1<<53 - 12
	largest     = 1<<63 - 1 // of what the store keeps
)

// seed makes a store whose next start is the last epoch, in which each of the
// resources is two grants away from the largest number (KF-18).
func seed(t *testing.T, dir string, resources ...string) {
	t.Helper()
	s, stop := serveIn(t, dir)
	c, err := rpc.Dial(s.grpc, rpc.ClientConfig{Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	for _, r := range resources {
		held, err := c.Acquire(t.Context(), lastword.AcquireRequest{Resource: lastword.Resource(r), Owner: "seed", RequestID: "seed", TTL: time.Minute})
		if err == nil {
			err = c.Release(t.Context(), held.TenureRef)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	stop()
	// The witness would notice, and rightly.
	if err := os.Remove(filepath.Join(dir, "s.db.witness")); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", filepath.Join(dir, "s.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	const counter = 1<<33 - 3
	const fence = lastEpoch<<33 | counter
	for _, set := range []struct {
		text string
		args []any
	}{
		{"UPDATE lastword_header SET epoch = ?", []any{lastEpoch - 1}},
		{"UPDATE lastword_record SET epoch = ?, counter = ?, fence = ?, revision = ?", []any{lastEpoch, counter, fence, revision}},
		{"UPDATE lastword_record SET revision = ? WHERE resource = 'session/shared'", []any{int64(largest)}},
		{"DELETE FROM lastword_request", nil},
	} {
		if _, err := db.ExecContext(t.Context(), set.text, set.args...); err != nil {
			t.Fatal(err)
		}
	}
}

// The same session through every door of one real process: all of them see the same
// numbers, to the last digit (KF-18).
func TestEveryDoorSeesTheSameNumbers(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("heavy: several processes; runs without the race detector")
	}
	for _, need := range []string{"curl", "python3"} {
		if _, err := exec.LookPath(need); err != nil {
			t.Fatalf("this test calls the authority with %s, which is not there", need)
		}
	}
	dir, names := t.TempDir(), []string{"go", "reflection", "curl", "python"}
	var resources []string
	for _, name := range names {
		resources = append(resources, "session/"+name)
	}
	seed(t, dir, append(resources, "session/shared")...)
	s, stop := serveIn(t, dir)
	defer stop()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	goDoor, err := newGoDoor(s.grpc)
	if err != nil {
		t.Fatal(err)
	}
	defer goDoor.close()
	reflected, err := newReflectionDoor(ctx, s.grpc)
	if err != nil {
		t.Fatal(err)
	}
	defer reflected.close()

	saw := map[string]object{"python": python(ctx, t, s.http, "session/python")}
	for name, d := range map[string]door{"go": goDoor, "reflection": reflected, "curl": curlDoor{s.http}} {
		saw[name] = session(ctx, t, name, d, "session/"+name)
	}
	want := object{
		"acquire":    []any{firstFence, "9007199254740981"},
		"watch_held": []any{"HELD", firstFence, "9007199254740981"},
		"held":       []any{"HELD", "a", firstFence},
		"renew":      []any{firstFence, "9007199254740982", "60s"},
		"waited":     []any{secondFence, true, "RELEASED", firstFence, true, "ZG9uZQ=="},
		"read":       []any{"RELEASED", "9007199254740989", "9223372036854775807"},
	}
	for _, name := range names {
		if !reflect.DeepEqual(saw[name], saw["go"]) {
			t.Errorf("%s saw\n%v\nand go\n%v", name, saw[name], saw["go"])
		}
		for step, numbers := range want {
			if !reflect.DeepEqual(saw[name][step], numbers) {
				t.Errorf("%s saw %s as %v, want %v", name, step, saw[name][step], numbers)
			}
		}
	}
	t.Logf("every door saw %v", saw["go"])
}

// summary is what a watch or a status shows, as far as it does not depend on the time.
func summary(status object) []any {
	whose, ok := status["holder"].(object)
	if !ok {
		whose, ok = status["last"].(object)
	}
	if !ok {
		whose = object{"fence": "0"}
	}
	return []any{status["state"], whose["fence"], status["revision"]}
}

// session is examples/http-python/session.py, for the other doors.
func session(ctx context.Context, t *testing.T, name string, d door, resource string) object {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	seen, watched := make(chan object, 1000), make(chan error, 1)
	defer func() {
		cancel()
		<-watched
	}()
	go func() { watched <- d.watch(ctx, resource, func(o object) { seen <- o }) }()
	shown := func(what string, is func(object) bool) object {
		t.Helper()
		for {
			select {
			case o := <-seen:
				if is(o) {
					return o
				}
			case err := <-watched:
				watched <- nil
				t.Fatalf("%s: the watch ended before it showed %s: %v", name, what, err)
			case <-ctx.Done():
				t.Fatalf("%s: the watch does not show %s", name, what)
			}
		}
	}
	status := func(o object) object { s, _ := o["status"].(object); return s }
	must := func(op string, request object) object {
		t.Helper()
		answer, refusal, err := d.call(ctx, op, request)
		if err != nil || refusal != nil {
			t.Fatalf("%s: %s: %v, %v", name, op, refusal, err)
		}
		return answer
	}
	attempt := func(owner, id, wait string) object {
		return object{"resource": resource, "owner": owner, "request_id": id, "ttl": "60s", "wait": wait}
	}
	reference := func(tenure object) object {
		ref := object{}
		for _, f := range []string{"resource", "owner", "request_id", "lease_id", "fence"} {
			ref[f] = tenure[f]
		}
		return ref
	}
	saw := object{}
	shown("that it is complete", func(o object) bool { return o["complete"] == true })

	first := must("acquire", attempt("a", "a1", "0s"))["tenure"].(object)
	saw["acquire"] = []any{first["fence"], first["revision"]}
	saw["watch_held"] = summary(status(shown("the first holder", func(o object) bool { return status(o)["state"] == "HELD" })))

	_, refusal, err := d.call(ctx, "acquire", attempt("b", "b1", "0s"))
	if err != nil || refusal == nil {
		t.Fatalf("%s: b was not refused: %v", name, err)
	}
	saw["held"] = []any{refusal["reason"], refusal["holder"], refusal["fence"]}

	woken := make(chan object, 1)
	go func() {
		answer, refusal, err := d.call(ctx, "acquire", attempt("b", "b2", "60s"))
		if err != nil || refusal != nil {
			t.Errorf("%s: the waiter got %v, %v", name, refusal, err)
		}
		woken <- answer
	}()
	for must("status", object{"resource": resource})["status"].(object)["waiters"] != 1.0 {
		time.Sleep(time.Millisecond)
	}
	renewed := must("renew", reference(first))["tenure"].(object)
	saw["renew"] = []any{renewed["fence"], renewed["revision"], renewed["remaining"]}
	done := reference(first)
	done["result"] = "ZG9uZQ=="
	must("complete", done)
	must("release", reference(first))

	answer := <-woken
	if answer == nil {
		t.Fatal("it was not woken up")
	}
	second := answer["tenure"].(object)
	previous := second["previous"].(object)
	saw["waited"] = []any{second["fence"], second["waited"], previous["state"], previous["fence"], previous["completed"], previous["result"]}
	must("renew", reference(second)) // R25
	must("release", reference(second))

	last := must("status", object{"resource": resource})["status"].(object)
	saw["status"] = append(summary(last), last["next_fence"])
	saw["watch_end"] = summary(status(shown("the end", func(o object) bool { return status(o)["revision"] == last["revision"] })))
	saw["read"] = summary(must("status", object{"resource": "session/shared"})["status"].(object))
	return saw
}

// python runs the script that a user would run.
func python(ctx context.Context, t *testing.T, addr, resource string) (saw object) {
	t.Helper()
	cmd := exec.CommandContext(ctx, "python3", "-I", "../../examples/http-python/session.py",
		"--json", "--address", addr, "--resource", resource, "--attempt", "", "--read", "session/shared")
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &saw)
	}
	if err != nil {
		t.Fatalf("python: %v: %s%s", err, out, stderr.String())
	}
	return saw
}

// curlDoor calls with curl.
type curlDoor struct{ addr string }

func (d curlDoor) call(ctx context.Context, op string, request object) (answer, refusal object, err error) {
	args := []string{"-sS", "--max-time", "120", "-w", "\n%{http_code}"}
	if op == "status" {
		query := url.Values{}
		for name, value := range request {
			query.Set(name, fmt.Sprint(value))
		}
		args = append(args, "http://"+d.addr+"/v1/status?"+query.Encode())
	} else {
		body, err := json.Marshal(request)
		if err != nil {
			return nil, nil, err
		}
		args = append(args, "-H", "Content-Type: application/json", "-d", string(body), "http://"+d.addr+"/v1/"+op)
	}
	out, err := exec.CommandContext(ctx, "curl", args...).Output()
	if err != nil {
		return nil, nil, fmt.Errorf("curl: %w: %s", err, out)
	}
	at := bytes.LastIndexByte(out, '\n')
	var got object
	if err := json.Unmarshal(out[:at], &got); err != nil {
		return nil, nil, err
	}
	if string(out[at+1:]) != "200" {
		return nil, got, nil
	}
	return got, nil, nil
}

func (d curlDoor) watch(ctx context.Context, prefix string, show func(object)) error {
	cmd := exec.CommandContext(ctx, "curl", "-sSN", "http://"+d.addr+"/v1/watch?prefix="+url.QueryEscape(prefix))
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var o object
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return errors.Join(err, cmd.Wait())
		}
		show(o)
	}
	return cmd.Wait()
}

// goDoor calls with the Go client.
type goDoor struct{ client *rpc.Client }

func newGoDoor(addr string) (*goDoor, error) {
	c, err := rpc.Dial(addr, rpc.ClientConfig{Timeout: patience})
	return &goDoor{c}, err
}

func (d *goDoor) close() { _ = d.client.Close() }

func (d *goDoor) call(ctx context.Context, op string, request object) (answer, refusal object, err error) {
	answer, err = d.do(ctx, op, request)
	if e, ok := asError(err); ok {
		refusal, err = shape(rpc.RefusalMessage(e), nil)
		return nil, refusal, err
	}
	return answer, nil, err
}

// do reads the request as the schema has it, calls, and shows the answer likewise.
func (d *goDoor) do(ctx context.Context, op string, request object) (object, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	var all wire.AcquireRequest
	var done wire.CompleteRequest
	_ = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(body, &all)
	_ = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(body, &done)
	ref := lastword.TenureRef{
		Resource: lastword.Resource(done.GetResource()), Owner: done.GetOwner(), RequestID: done.GetRequestId(),
		LeaseID: done.GetLeaseId(), Fence: lastword.Token(done.GetFence()),
	}
	tenure := func(t lastword.Tenure, err error) (object, error) {
		return shape(&wire.AcquireResponse{Tenure: rpc.TenureMessage(t)}, err)
	}
	switch op {
	case "acquire":
		return tenure(d.client.Acquire(ctx, lastword.AcquireRequest{
			Resource: ref.Resource, Owner: ref.Owner, RequestID: ref.RequestID, TTL: all.GetTtl().AsDuration(), Wait: all.GetWait().AsDuration(),
		}))
	case "renew":
		return tenure(d.client.Renew(ctx, ref))
	case "complete":
		return object{}, d.client.Complete(ctx, ref, done.GetResult())
	case "release":
		return object{}, d.client.Release(ctx, ref)
	}
	st, err := d.client.Status(ctx, lastword.StatusQuery{Resource: ref.Resource})
	return shape(&wire.StatusResponse{Status: rpc.StatusMessage(st)}, err)
}

func (d *goDoor) watch(ctx context.Context, prefix string, show func(object)) error {
	for sight, err := range d.client.Watch(ctx, prefix) {
		if err != nil {
			return err
		}
		o, err := shape(rpc.WatchMessage(sight), nil)
		if err != nil {
			return err
		}
		show(o)
	}
	return nil
}

// shape is a message as the wire's JSON.
func shape(m proto.Message, err error) (o object, _ error) {
	if err != nil {
		return nil, err
	}
	err = json.Unmarshal(wireJSON(m), &o)
	return o, err
}
