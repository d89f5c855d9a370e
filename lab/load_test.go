package lab

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/client"
	"github.com/lastword/lastword/fence"
	"github.com/lastword/lastword/fence/sqlfence"
	"github.com/lastword/lastword/lab/history"
	"github.com/lastword/lastword/rpc"
)

// callDeadline bounds every call of a writer.
const callDeadline = 4 * time.Second

// cleanup bounds the cancel of an acquire that was given up, which comes on top.
const cleanup = time.Second

var loadDocuments = []string{"load/a", "load/b", "load/c"}

type writerConfig struct {
	Addr     string
	Database string
	Name     string
	Seed     uint64
	For      time.Duration
}

// result is one call of a writer.
type result struct {
	Call string        `json:"call"`
	Code string        `json:"code"`
	Op   string        `json:"op,omitempty"` // of a write
	Took time.Duration `json:"took"`
	Why  string        `json:"why,omitempty"`
}

// writerChild takes a lease, renews it, writes with it and gives it up, again and
// again.
func writerChild(c writerConfig) (err error) {
	conn, err := rpc.Dial(c.Addr, rpc.ClientConfig{})
	if err != nil {
		return err
	}
	defer conn.Close()
	db, err := openBusiness(c.Database)
	if err != nil {
		return err
	}
	defer db.Close()
	gate, err := newGate(context.Background(), db, conn, fence.Config{})
	if err != nil {
		return err
	}
	defer gate.Close()
	out := &lines{out: os.Stdout}
	w := &writer{
		lines: out, writerConfig: c, gate: gate, random: rand.New(rand.NewPCG(c.Seed, 0)),
		authority: history.Recorder{Authority: conn, Note: func(f history.Fact) { out.say("fact", f) }},
	}
	if w.client, err = client.New(w.authority, client.Config{Owner: c.Name, CleanupTimeout: cleanup}); err != nil {
		return err
	}
	for end := history.Clock() + c.For; history.Clock() < end; w.rounds++ {
		w.round()
	}
	if err := w.client.Close(); err != nil {
		return err
	}
	out.say("done", w.rounds)
	return nil
}

type writer struct {
	*lines
	writerConfig
	gate      *sqlfence.Fence
	authority client.Authority
	client    *client.Client
	random    *rand.Rand
	rounds    int
}

// call does one call under a deadline and says what came of it.
func (w *writer) call(name, op string, do func(context.Context) (lastword.Verdict, error)) error {
	ctx, cancel := context.WithTimeout(context.Background(), callDeadline)
	defer cancel()
	began := history.Clock()
	verdict, err := do(ctx)
	r := result{Call: name, Op: op, Code: string(verdict), Took: history.Clock() - began}
	if err != nil {
		r.Code, r.Why = string(history.CodeOf(err)), err.Error()
	}
	w.say("result", r)
	return err
}

func (w *writer) round() {
	document := loadDocuments[w.random.IntN(len(loadDocuments))]
	o := client.AcquireOptions{TTL: 10 * time.Second, Wait: callDeadline / 2, RequestID: fmt.Sprint(w.rounds)}
	var l *client.Lease
	if w.call("acquire", "", func(ctx context.Context) (v lastword.Verdict, err error) {
		l, err = w.client.Acquire(ctx, lastword.Resource(document), o)
		return "", err
	}) != nil {
		return
	}
	op := w.Name + "/" + o.RequestID
	write := func(ctx context.Context) (lastword.Verdict, error) {
		r, err := w.gate.Apply(ctx, l, op, []byte(op), func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO effect (operation, document, fence) VALUES (?, ?, ?)`, op, document, int64(l.Fence()))
			return err
		})
		return r.Verdict, err
	}
	_ = w.call("write", op, write)
	_ = w.call("renew", "", func(ctx context.Context) (lastword.Verdict, error) {
		_, err := w.authority.Renew(ctx, l.Ref())
		return "", err
	})
	switch w.random.IntN(4) {
	case 0:
		_ = w.call("write", op, write)
	case 1:
		_ = w.call("repeat", "", func(ctx context.Context) (lastword.Verdict, error) {
			q := wanted(document, w.Name, o.RequestID, o.TTL, 0)
			q.Class = lastword.ClassWrite
			t, err := w.authority.Acquire(ctx, q)
			if err == nil && t.Fence != l.Fence() {
				w.say("violation", fmt.Sprintf("%s gave fence %d, then %d", op, l.Fence(), t.Fence))
			}
			return "", err
		})
	case 2:
		_ = w.call("complete", "", func(ctx context.Context) (lastword.Verdict, error) { return "", l.Complete(ctx, []byte(op)) })
	}
	_ = w.call("release", "", func(ctx context.Context) (lastword.Verdict, error) { return "", l.Release(ctx) })
}

// unheard are the codes of a call that had no answer in its time. One that comes
// early is a busy error that was not tried again.
var unheard = " UNAVAILABLE UNKNOWN MUTATION_UNKNOWN STATUS_UNAVAILABLE "

// allowed is what may come of each call; everything else looks like a loss that
// nobody caused.
var allowed = map[string]string{
	"acquire": unheard + " HELD CANCELED ", "write": unheard + " APPLIED REPLAYED STALE_OWNER ",
	"renew": unheard, "repeat": unheard, "complete": unheard, "release": unheard,
}

func TestKF22EightProcessesBesideAReaderAndCheckpoints(t *testing.T) { // 12 s for 60 s
	t.Parallel()
	length := 12 * time.Second
	if testing.Short() {
		length = 3 * time.Second
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	dir := t.TempDir()
	a, addr := serve(t, authorityConfig{Dir: dir})
	p := newPlace(t, addr, fence.Config{}, loadDocuments...)
	if _, err := p.db.ExecContext(t.Context(), `CREATE TABLE effect (n INTEGER PRIMARY KEY, operation TEXT NOT NULL, document TEXT NOT NULL, fence INTEGER NOT NULL) STRICT`); err != nil {
		t.Fatal(err)
	}
	slow := measureDrag(t)
	stopDisturbing := disturb(t, authorityPath(dir), p.path)
	seen := &book{}
	var mu sync.Mutex
	counts, applied, open := map[string]int{}, map[string]int{}, map[string]bool{}
	var longest time.Duration
	take := func(line string) {
		kind, rest, _ := strings.Cut(line, " ")
		mu.Lock()
		defer mu.Unlock()
		switch kind {
		case "fact":
			var f history.Fact
			if err := json.Unmarshal([]byte(rest), &f); err != nil {
				t.Error(err)
			}
			seen.note(f)
		case "result":
			var r result
			if err := json.Unmarshal([]byte(rest), &r); err != nil {
				t.Error(err)
			}
			counts[r.Call+" "+r.Code]++
			longest = max(longest, r.Took)
			if r.Code != "" && !strings.Contains(allowed[r.Call], " "+r.Code+" ") {
				t.Errorf("%s: %s: %s", r.Call, r.Code, r.Why)
			}
			if r.Code != "" && strings.Contains(unheard, " "+r.Code+" ") && r.Took < time.Second {
				t.Errorf("%s gave up after %v: %s", r.Call, r.Took, r.Why)
			}
			switch {
			case r.Code == string(lastword.Applied):
				applied[r.Op]++
			case r.Call == "write" && strings.Contains(unheard, " "+r.Code+" "):
				open[r.Op] = true
			}
		case "violation":
			t.Error(rest)
		}
	}
	var all []*kid
	var readers sync.WaitGroup
	for i := range 8 {
		k := spawn(t, "run-as-writer", writerConfig{Addr: addr, Database: p.path, Name: fmt.Sprint("w", i), Seed: seed + uint64(i), For: length})
		all = append(all, k)
		readers.Go(func() {
			for line := range k.lines {
				take(line)
			}
		})
	}
	readers.Wait()
	for _, k := range all {
		if <-k.gone; k.err != nil {
			t.Errorf("a writer ended with %v: %s", k.err, k.said)
		}
	}
	stopDisturbing()
	t.Logf("%v; longest call %v, drag %v", counts, longest, slow.mark())
	if longest > callDeadline+cleanup+slow.within(margin, 0) {
		t.Errorf("a call took %v, its deadline was %v", longest, callDeadline+cleanup)
	}
	for _, must := range []string{"write APPLIED", "write REPLAYED", "renew ", "repeat ", "complete ", "release "} {
		if counts[must] == 0 {
			t.Errorf("no %q: the load proves nothing", must)
		}
	}
	checkEffects(t, p, applied, open)
	end(t, a)
	verifyAll(t, dir, seen.all())
}

// checkEffects: an operation that was applied has one effect, no other has any, and
// no effect of an older fence stands behind one of a newer fence.
func checkEffects(t *testing.T, p place, applied map[string]int, open map[string]bool) {
	t.Helper()
	rows, err := p.db.QueryContext(t.Context(), `SELECT operation, document, fence FROM effect ORDER BY n`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	effects, highest := map[string]int{}, map[string]int64{}
	for rows.Next() {
		var op, document string
		var fence int64
		if err := rows.Scan(&op, &document, &fence); err != nil {
			t.Fatal(err)
		}
		effects[op]++
		if fence < highest[document] {
			t.Errorf("%s with fence %d came after fence %d", op, fence, highest[document])
		}
		highest[document] = fence
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	for op, n := range effects {
		if n != 1 || applied[op] == 0 && !open[op] {
			t.Errorf("%s has %d effects and %d receipts", op, n, applied[op])
		}
	}
	for op, n := range applied {
		if n != 1 || effects[op] != 1 {
			t.Errorf("%s was applied %d times and has %d effects", op, n, effects[op])
		}
	}
}

// disturb reads for long and checkpoints all the time, in each file.
func disturb(t *testing.T, paths ...string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	var reads, checkpoints int
	var mu sync.Mutex
	for _, path := range paths {
		// A checkpoint that waits for readers keeps writers out meanwhile.
		db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5)")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		running.Go(func() {
			for ctx.Err() == nil {
				if err := readLong(ctx, path); err != nil && ctx.Err() == nil {
					t.Errorf("the long reader: %v", err)
					return
				}
				mu.Lock()
				reads++
				mu.Unlock()
			}
		})
		running.Go(func() {
			for ctx.Err() == nil {
				var busy, logged, done int
				err := db.QueryRowContext(ctx, `PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &logged, &done)
				mu.Lock()
				if err == nil {
					checkpoints++
				}
				mu.Unlock()
				select {
				case <-ctx.Done():
				case <-time.After(20 * time.Millisecond):
				}
			}
		})
	}
	return func() {
		cancel()
		running.Wait()
		t.Logf("%d long reads, %d checkpoints", reads, checkpoints)
		if reads == 0 || checkpoints == 0 {
			t.Error("nobody disturbed")
		}
	}
}

// readLong keeps one reading transaction open for a second.
func readLong(ctx context.Context, path string) (err error) {
	db, err := sql.Open("sqlite", "file:"+path+"?mode=ro&_pragma=busy_timeout(5000)")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	for range 10 {
		var n int
		if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_schema`).Scan(&n); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}
