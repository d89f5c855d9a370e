package fencesql

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
)

// TimeLayout sorts as text and is exact to the microsecond.
const TimeLayout = "2006-01-02T15:04:05.000000Z"

func timeText(t time.Time) string { return t.UTC().Format(TimeLayout) }

// recordArgs are the columns of a record, from fence to restored.
func recordArgs(rec fence.Record) ([]any, error) {
	for _, n := range [...]uint64{uint64(rec.Fence), rec.LastSeq, rec.Step, rec.BundleSequence, rec.MinPolicyGeneration, rec.Heard.Revision, rec.Restored} {
		if err := fits(n); err != nil {
			return nil, err
		}
	}
	return []any{
		int64(rec.Fence), rec.LeaseID, rec.GrantDigest.String(), rec.Root.String(),
		int64(rec.LastSeq), rec.LastOperation, rec.LastPayload.String(),
		string(rec.Policy), string(rec.Status), rec.Frozen, int64(rec.Step),
		int64(rec.BundleSequence), int64(rec.MinEpoch), int64(rec.MinPolicyGeneration),
		rec.Imported, int64(rec.Heard.Epoch), int64(rec.Heard.Revision), int64(rec.Restored),
	}, nil
}

// fits: the engines' integers are signed. No honest number comes near the bound.
func fits(n uint64) error {
	if n > math.MaxInt64 {
		return &lastword.Error{Code: lastword.CodeInvalid, Message: fmt.Sprintf("the number %d does not fit into the database", n)}
	}
	return nil
}

// recordRow takes the columns of a record as a statement returns them.
type recordRow struct {
	rec                    fence.Record
	grant, root, payload   string
	policy, status         string
	fence, seq, step       int64
	bundle, epoch, minimum int64
	heardEpoch, heard      int64
	restored               int64
}

func (r *recordRow) targets() []any {
	return []any{
		&r.rec.Exists, &r.fence, &r.rec.LeaseID, &r.grant, &r.root,
		&r.seq, &r.rec.LastOperation, &r.payload,
		&r.policy, &r.status, &r.rec.Frozen, &r.step,
		&r.bundle, &r.epoch, &r.minimum,
		&r.rec.Imported, &r.heardEpoch, &r.heard, &r.restored, &r.rec.Unraised, &r.rec.Lost,
	}
}

// scan reads what a load returns: first the settings of the connection, whatever they
// are, then the record and what is known beside it.
func (l *loaded) scan(row Row, operation string, settings ...any) error {
	var r recordRow
	var payload string
	var pruned int64
	targets := append(append(settings, r.targets()...), &l.known.Receipt, &payload, &l.known.Tombstone, &pruned, &r.rec.Shadow)
	if err := row.Scan(targets...); err != nil {
		return err
	}
	var err error
	if l.record, err = r.record(); err != nil {
		return err
	}
	l.pruned = uint64(pruned)
	l.known.Tombstone = l.known.Tombstone || !l.known.Receipt && fence.Pruned(operation, l.pruned)
	return parseDigest(&l.known.Payload, payload)
}

func (r *recordRow) record() (fence.Record, error) {
	rec := r.rec
	rec.Fence, rec.LastSeq, rec.Step = lastword.Token(r.fence), uint64(r.seq), uint64(r.step)
	rec.BundleSequence, rec.MinEpoch, rec.MinPolicyGeneration = uint64(r.bundle), uint32(r.epoch), uint64(r.minimum)
	rec.Heard.Epoch, rec.Heard.Revision, rec.Restored = uint32(r.heardEpoch), uint64(r.heard), uint64(r.restored)
	rec.Policy, rec.Status = fence.Policy(r.policy), fence.StatusMode(r.status)
	err := errors.Join(parseDigest(&rec.GrantDigest, r.grant), parseDigest(&rec.Root, r.root), parseDigest(&rec.LastPayload, r.payload))
	return rec, err
}

// parseDigest reads a digest column. What is not one was not written by us.
func parseDigest(d *lastword.Digest, s string) (err error) {
	if s == "" {
		*d = lastword.Digest{}
		return nil
	}
	if *d, err = lastword.ParseDigest(s); err != nil {
		return &lastword.Error{Code: lastword.CodeInternal, Message: "a digest in the tables of the fence is damaged", Err: err}
	}
	return nil
}

func receiptArgs(key fence.Key, r lastword.Receipt) ([]any, error) {
	for _, n := range [...]uint64{uint64(r.Fence), r.Seq} {
		if err := fits(n); err != nil {
			return nil, err
		}
	}
	return []any{
		key.Domain, string(key.Resource), r.Operation, r.Payload.String(), int64(r.Fence), int64(r.Seq),
		r.LeaseID, r.GrantDigest.String(), r.Owner, r.Caller, r.Root.String(), blob(r.Result), timeText(r.AppliedAt),
	}, nil
}

// blob keeps "none" from becoming NULL.
func blob(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// scanReceipt reads what texts.Receipt returns.
func scanReceipt(row Row, key fence.Key, operation string) (lastword.Receipt, error) {
	r := lastword.Receipt{Domain: key.Domain, Resource: key.Resource, Operation: operation, Verdict: lastword.Applied}
	var payload, digest, root, at string
	var token, seq int64
	if err := row.Scan(&payload, &token, &seq, &r.LeaseID, &digest, &r.Owner, &r.Caller, &root, &r.Result, &at); err != nil {
		return lastword.Receipt{}, err
	}
	r.Fence, r.Seq = lastword.Token(token), uint64(seq)
	if len(r.Result) == 0 {
		r.Result = nil
	}
	var err error
	if r.AppliedAt, err = readTime(at); err != nil {
		return lastword.Receipt{}, err
	}
	err = errors.Join(parseDigest(&r.Payload, payload), parseDigest(&r.GrantDigest, digest), parseDigest(&r.Root, root))
	return r, err
}
