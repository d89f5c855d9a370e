package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/rpc"
	wire "github.com/lastword/lastword/rpc/lastword/v1"
)

// The two outcomes of a Problem.
const (
	notDone = "not_done"
	unknown = "unknown"
)

// describedAt is where the reasons are described.
const describedAt = "https://github.com/lastword/lastword/blob/main/docs/http.md#"

// answer is how a reason is told in HTTP.
type answer struct {
	status int
	title  string
}

// answers is the table of docs/http.md.
var answers = map[lastword.Code]answer{
	lastword.CodeInvalid:         {http.StatusBadRequest, "the request is not valid"},
	lastword.CodeHeld:            {http.StatusConflict, "another tenure is valid, or nothing may be granted yet"},
	lastword.CodeNotHolder:       {http.StatusConflict, "the named tenure is not the current one"},
	lastword.CodeRequestConflict: {http.StatusUnprocessableEntity, "the same id came before with other content"},
	lastword.CodeTenureEnded:     {http.StatusGone, "the tenure of this request id has ended"},
	lastword.CodeCanceled:        {http.StatusGone, "this request id was cancelled"},
	lastword.CodeExhausted:       {http.StatusConflict, "the numbers are used up"},
	lastword.CodeQuota:           {http.StatusTooManyRequests, "a bound is reached"},
	lastword.CodeUnavailable:     {http.StatusServiceUnavailable, "not done, for certain: the authority cannot serve now"},
	lastword.CodeUnknown:         {http.StatusServiceUnavailable, "it is not known whether it was done"},
	lastword.CodeInternal:        {http.StatusInternalServerError, "the authority is broken; not done"},

	lastword.CodeUnverified:        {http.StatusForbidden, "a proof failed"},
	lastword.CodeFenceRegression:   {http.StatusLocked, "the state went back; a person has to look"},
	lastword.CodeFenceJump:         {http.StatusLocked, "the fence jumped; a person has to look"},
	lastword.CodeConflict:          {http.StatusUnprocessableEntity, "the same operation came before with other content"},
	lastword.CodeStaleOwner:        {http.StatusConflict, "a newer holder has written"},
	lastword.CodeOutOfOrder:        {http.StatusConflict, "the write is out of order"},
	lastword.CodeRootMismatch:      {http.StatusConflict, "the write belongs to other work"},
	lastword.CodeReceiptExpired:    {http.StatusGone, "the receipt is not kept any more"},
	lastword.CodeFenceRequired:     {http.StatusPreconditionRequired, "a fence is required"},
	lastword.CodeStatusUnavailable: {http.StatusServiceUnavailable, "not done, for certain: the authority could not be asked"},
	lastword.CodeMutationUnknown:   {http.StatusServiceUnavailable, "it is not known whether it was written"},
}

// refused is what HTTP itself refuses: nothing was asked of the authority.
func refused(op string, code int, detail, hint string) *wire.Problem {
	return &wire.Problem{
		Type: "about:blank", Title: http.StatusText(code), Status: uint32(code), Detail: detail,
		Reason: string(lastword.CodeInvalid), Outcome: notDone, Op: op, Hint: hint,
	}
}

// said is what a refusal is in HTTP.
func said(m *wire.Refusal) *wire.Problem {
	code := lastword.Code(m.GetReason())
	a, known := answers[code]
	if !known { // who does not know a reason takes it as unknown
		a, code = answers[lastword.CodeUnknown], lastword.CodeUnknown
	}
	p := &wire.Problem{
		Type: describedAt + strings.ReplaceAll(strings.ToLower(string(code)), "_", "-"), Title: a.title, Status: uint32(a.status),
		Detail: m.GetMessage(), Reason: m.GetReason(), Outcome: notDone, Op: m.GetOp(), Resource: m.GetResource(), Hint: m.GetHint(),
		Holder: m.GetHolder(), Fence: m.GetFence(), Remaining: m.GetRemaining(), Waiters: m.GetWaiters(), Ended: m.GetEnded(),
	}
	if code == lastword.CodeUnknown || code == lastword.CodeMutationUnknown {
		p.Outcome = unknown
	}
	return p
}

// failed is what the end of a call with err is in HTTP. asked says whether the
// service was called at all: before that, nothing can have been done.
func failed(r route, asked bool, err error) *wire.Problem {
	var own *lastword.Error
	if errors.As(err, &own) {
		m := rpc.RefusalMessage(own)
		if m.Op == "" {
			m.Op = r.op
		}
		return said(m)
	}
	st := status.Convert(err)
	for _, d := range st.Details() {
		if m, ok := d.(*wire.Refusal); ok {
			p := said(m)
			if st.Code() == codes.Unimplemented {
				p.Status = http.StatusNotImplemented
			}
			return p
		}
	}
	switch {
	case st.Code() == codes.Unimplemented:
		return refused(r.op, http.StatusNotImplemented, "this authority does not know the call", "the caller is newer than the authority")
	case !asked:
		return refused(r.op, http.StatusBadRequest, plain(st.Message()), "")
	case r.mutates:
		return said(&wire.Refusal{
			Reason: string(lastword.CodeUnknown), Op: r.op, Message: "there was no answer; it may or may not have been done",
			Hint: "repeat the call unchanged, or ask for the status",
		})
	}
	return said(&wire.Refusal{Reason: string(lastword.CodeUnavailable), Op: r.op, Message: "there was no answer"})
}

// plain is a message of the JSON library without its prefix, which varies on purpose.
func plain(s string) string {
	s = strings.TrimLeft(strings.TrimPrefix(strings.ReplaceAll(s, "\u00a0", " "), "proto:"), " ")
	const most = 256
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// problemJSON is p on one line.
func problemJSON(p *wire.Problem) []byte {
	return compact(protojson.MarshalOptions{UseProtoNames: true}, p)
}

func compact(opts protojson.MarshalOptions, m proto.Message) []byte {
	b, err := opts.Marshal(m)
	var out bytes.Buffer
	if err == nil {
		err = json.Compact(&out, b) // protojson varies its white space on purpose
	}
	if err != nil { // text that is not UTF-8; no parser of ours lets it in
		return []byte(`{"title":"the answer cannot be shown as JSON","status":500,"reason":"INTERNAL","outcome":"unknown"}`)
	}
	return out.Bytes()
}

// write answers with p.
func write(w http.ResponseWriter, p *wire.Problem) {
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	switch p.GetStatus() {
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		h.Set("Retry-After", "1")
	}
	w.WriteHeader(int(p.GetStatus()))
	_, _ = w.Write(append(problemJSON(p), '\n')) // nobody is left to be told
}
