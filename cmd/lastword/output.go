package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/lastword/lastword"
)

// row is one line of a text answer.
type row struct{ name, value string }

// answer prints what a command found: rows for people, or object as JSON. Rows
// without a value are left out.
func (a *app) answer(object any, rows ...row) error {
	if a.json {
		return a.object(object)
	}
	width := 0
	for _, r := range rows {
		if r.value != "" {
			width = max(width, len(r.name))
		}
	}
	var text bytes.Buffer // written at once: whole or not
	for _, r := range rows {
		if r.value != "" {
			fmt.Fprintf(&text, "%-*s  %s\n", width, r.name, printable(r.value))
		}
	}
	_, err := a.stdout.Write(text.Bytes())
	return err
}

// untold is an effect that is there, and an answer about it that could not be written.
// It is not a failure: what was asked for is done.
type untold struct {
	done  string // begins with the operation
	more  string // what else the caller has to know, may be ""
	cause error
}

func (u *untold) Error() string {
	text := u.done + ", but the answer could not be written: " + u.cause.Error()
	if u.more != "" {
		text += "; " + u.more
	}
	return text
}

// told says of an answer to something that was done whether it could be written.
func told(written error, done string, args ...any) error {
	if written == nil {
		return nil
	}
	return &untold{done: fmt.Sprintf(done, args...), cause: written}
}

// object prints one JSON object on one line.
func (a *app) object(v any) error {
	var b []byte
	var err error
	switch v := v.(type) {
	case proto.Message:
		b = wireJSON(v)
	case with:
		b, err = v.marshal()
	default:
		b, err = json.Marshal(v)
	}
	if err != nil {
		return err
	}
	_, err = a.stdout.Write(append(b, '\n'))
	return err
}

// wireJSON is a message as the wire's JSON: the schema's names, every field there,
// 64-bit numbers as strings.
func wireJSON(m proto.Message) []byte {
	b, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(m)
	if err != nil { // text that is not UTF-8; no parser of ours lets it in
		return []byte(`{"reason":"INTERNAL","message":"the answer cannot be shown as JSON"}`)
	}
	var out bytes.Buffer
	// protojson varies its white space on purpose; scripts want one line.
	if err := json.Compact(&out, b); err != nil {
		return b
	}
	return out.Bytes()
}

// with is a message of the schema and, behind its fields, what only a command knows.
type with struct {
	message proto.Message
	more    any // a struct
}

func (w with) marshal() ([]byte, error) {
	more, err := json.Marshal(w.more)
	if err != nil {
		return nil, err
	}
	b := wireJSON(w.message)
	if len(more) <= len("{}") {
		return b, nil
	}
	if len(b) <= len("{}") {
		return more, nil
	}
	return append(append(b[:len(b)-1], ','), more[1:]...), nil
}

// printable keeps what other people chose from moving the cursor.
func printable(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

func fenceText(t lastword.Token) string {
	if t == 0 {
		return ""
	}
	return t.Text()
}

// spanText is a duration for people: no finer than they can read.
func spanText(d time.Duration) string {
	if d >= time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.String()
}

// endingText tells how a tenure ended.
func endingText(e lastword.Ending) string {
	if e.State == "" {
		return ""
	}
	text := fmt.Sprintf("%s, fence %s of %s", e.State, e.Fence.Text(), printable(e.Owner))
	if e.Completed {
		text += ", completed with " + resultText(e.Result)
	}
	return text
}

// resultText is a result for people; -o json has all of it.
func resultText(b []byte) string {
	const shown = 64
	if len(b) > shown {
		return fmt.Sprintf("%q… (%d bytes)", b[:shown], len(b))
	}
	return strconv.Quote(string(b))
}

func number(n int) string { return strconv.Itoa(n) }

// quoted is s for a shell.
func quoted(s string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-:@%+=,"
	if s != "" && strings.Trim(s, plain) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
