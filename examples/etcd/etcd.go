package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence"
)

// etcd calls an etcd. In its JSON, bytes are base64 and 64-bit numbers are strings.
type etcd struct{ addr string }

func (e *etcd) call(ctx context.Context, path string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+e.addr+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	w, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = w.Body.Close() }()
	const limit = 1 << 20
	b, err := io.ReadAll(io.LimitReader(w.Body, limit))
	if err != nil {
		return err
	}
	if w.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd answers %s with %s: %.200s", path, w.Status, b)
	}
	return json.Unmarshal(b, answer)
}

// keyValue is a key as etcd has it.
type keyValue struct {
	Key            []byte `json:"key"`
	CreateRevision int64  `json:"create_revision,string"`
	Lease          int64  `json:"lease,string"`
}

// read asks for keys in the order of their creation, the first one alone. It is
// linearizable, which is etcd's default: an answer from the past proves nothing. The
// revision is that of the whole store.
func (e *etcd) read(ctx context.Context, from, to []byte) (first *keyValue, revision int64, err error) {
	question := struct {
		Key    []byte `json:"key"`
		End    []byte `json:"range_end,omitempty"`
		Order  string `json:"sort_order"`
		Target string `json:"sort_target"`
		Limit  int    `json:"limit"`
	}{from, to, "ASCEND", "CREATE", 1}
	var answer struct {
		Header struct {
			Revision int64 `json:"revision,string"`
		} `json:"header"`
		Keys []keyValue `json:"kvs"`
	}
	if err := e.call(ctx, "/v3/kv/range", question, &answer); err != nil {
		return nil, 0, err
	}
	if len(answer.Keys) > 0 {
		first = &answer.Keys[0]
	}
	return first, answer.Header.Revision, nil
}

func lockName(r lastword.Resource) string { return "lock/" + string(r) }

// lock waits for the lock of a resource under a lease of ttl, and gives the tenure: its
// number is the revision at which its key was created, its name is the lease.
func (e *etcd) lock(ctx context.Context, r lastword.Resource, owner string, ttl time.Duration) (t fence.Imported, err error) {
	var lease struct {
		ID int64 `json:"ID,string"`
	}
	if err := e.call(ctx, "/v3/lease/grant", map[string]string{"TTL": strconv.Itoa(int(ttl / time.Second))}, &lease); err != nil {
		return t, err
	}
	var locked struct {
		Key []byte `json:"key"`
	}
	question := struct {
		Name  []byte `json:"name"`
		Lease int64  `json:"lease,string"`
	}{[]byte(lockName(r)), lease.ID}
	if err := e.call(ctx, "/v3/lock/lock", question, &locked); err != nil {
		return t, err
	}
	own, _, err := e.read(ctx, locked.Key, nil)
	if err != nil {
		return t, err
	}
	if own == nil {
		return t, errors.New("the lock's key has gone already: its lease has lapsed")
	}
	return fence.Imported{Token: lastword.Token(own.CreateRevision), Tenure: tenureName(own.Lease), Owner: owner}, nil
}

func tenureName(lease int64) string { return strconv.FormatInt(lease, 16) }

// revoke gives a lock back.
func (e *etcd) revoke(ctx context.Context, t fence.Imported) error {
	id, err := strconv.ParseInt(t.Tenure, 16, 64)
	if err != nil {
		return err
	}
	return e.call(ctx, "/v3/lease/revoke", map[string]string{"ID": strconv.FormatInt(id, 10)}, &struct{}{})
}

// Status is the gate's question, whether a tenure is still held: who has the oldest key
// below the lock's name has the lock. The next tenure's number is above the store's
// present revision, so an etcd that was restored to an old one contradicts the table,
// and the record is frozen (FENCE_REGRESSION).
func (e *etcd) Status(ctx context.Context, q lastword.StatusQuery) (lastword.Status, error) {
	from, to := []byte(lockName(q.Resource)+"/"), []byte(lockName(q.Resource)+"0") // "0" follows "/"
	first, revision, err := e.read(ctx, from, to)
	if err != nil {
		return lastword.Status{}, err
	}
	st := lastword.Status{Resource: q.Resource, State: lastword.StateFree, NextFence: lastword.Token(revision + 1)}
	if first != nil {
		st.State = lastword.StateHeld
		st.Holder = lastword.TenureRef{Resource: q.Resource, LeaseID: tenureName(first.Lease), Fence: lastword.Token(first.CreateRevision)}
	}
	return st, nil
}
