package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/rpc"
	wire "github.com/lastword/lastword/rpc/lastword/v1"
)

// maxDepth is how deep the JSON of a request may be nested (T22).
const maxDepth = 4

// What a number and a duration look like. JSON and its libraries know more spellings;
// one is enough (KF-18, KF-20).
var (
	aNumber   = regexp.MustCompile(`^(0|[1-9][0-9]{0,19})$`)
	aDuration = regexp.MustCompile(`^[0-9]{1,12}(\.[0-9]{1,9})?s$`)
	tooLong   = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?s$`)
)

// check refuses a request that the transcoder would overlook something of, and gives
// it a body that has arrived whole.
func (s *Server) check(w http.ResponseWriter, r *http.Request, to route) *wire.Problem {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return refused(to.op, http.StatusBadRequest, "the query is not valid: "+plain(err.Error()), "")
	}
	if to.method == http.MethodGet {
		if r.ContentLength != 0 {
			return refused(to.op, http.StatusBadRequest, "a GET has no body here", "put what is asked into the query")
		}
		if err := checkQuery(query, to.request); err != nil {
			return refused(to.op, http.StatusBadRequest, err.Error(), "")
		}
		return nil
	}
	if len(query) > 0 {
		return refused(to.op, http.StatusBadRequest, "a POST has no query here", "put what is asked into the body")
	}
	if kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" ||
		params["charset"] != "" && !strings.EqualFold(params["charset"], "utf-8") {
		return refused(to.op, http.StatusUnsupportedMediaType, "the body has to be application/json", "with curl: -H 'Content-Type: application/json'")
	}
	if r.Header.Get("Content-Encoding") != "" {
		return refused(to.op, http.StatusUnsupportedMediaType, "the body must not be encoded", "leave Content-Encoding out")
	}
	body, p := s.body(w, r, to)
	if p != nil {
		return p
	}
	if err := checkBody(body, to.request); err != nil {
		return refused(to.op, http.StatusBadRequest, err.Error(), "")
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}

// body reads a body that is neither too large nor too slow.
func (s *Server) body(w http.ResponseWriter, r *http.Request, to route) ([]byte, *wire.Problem) {
	tooLarge := refused(to.op, http.StatusRequestEntityTooLarge, fmt.Sprintf("the body has more than %d bytes", rpc.MaxRequestBytes), "")
	if r.ContentLength > rpc.MaxRequestBytes {
		return nil, tooLarge
	}
	limit := http.NewResponseController(w)
	// The time limit is there already, see announced; a shutdown makes it shorter.
	stop := context.AfterFunc(s.closing, func() { _ = limit.SetReadDeadline(s.cfg.Now()) })
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, rpc.MaxRequestBytes))
	ends := !stop() || s.aged(r)
	if err == nil {
		whole(w, limit, ends)
		return b, nil
	}
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return nil, tooLarge
	}
	switch {
	case ends:
		return nil, said(&wire.Refusal{Reason: string(lastword.CodeUnavailable), Op: to.op, Message: "the server is shutting down"})
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, refused(to.op, http.StatusRequestTimeout, "the body did not arrive in time", "")
	}
	return nil, refused(to.op, http.StatusBadRequest, "the body did not arrive whole", "")
}

// announced is for a request that says it has a body. Its time runs from here on,
// whether anybody reads it or not (T22). As long as it was not read whole the answer
// closes the connection: otherwise net/http would read the rest before it answers. end
// leaves a caller that still writes a moment to see the answer.
func (s *Server) announced(w http.ResponseWriter) (end func()) {
	const moment = time.Second
	limit := http.NewResponseController(w)
	_ = limit.SetReadDeadline(s.cfg.Now().Add(s.cfg.RequestTimeout)) // a recorder has none
	w.Header().Set("Connection", "close")
	return func() {
		if w.Header().Get("Connection") != "" {
			_ = limit.SetReadDeadline(s.cfg.Now().Add(min(moment, s.cfg.RequestTimeout)))
		}
	}
}

// whole is for a body that was read to its end: the connection may go on, and no
// deadline ends a call that waits.
func whole(w http.ResponseWriter, limit *http.ResponseController, ends bool) {
	_ = limit.SetReadDeadline(none)
	if !ends {
		w.Header().Del("Connection")
	}
}

// checkBody wants one JSON object whose members the message has.
func checkBody(b []byte, m protoreflect.MessageDescriptor) error {
	if err := checkShape(b); err != nil {
		return err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(b, &members); err != nil {
		return fmt.Errorf("the body is no JSON: %s", plain(err.Error()))
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		f := field(m, name)
		if f == nil {
			return fmt.Errorf("there is no member %q", plain(name))
		}
		if err := checkMember(f, members[name]); err != nil {
			return err
		}
	}
	return nil
}

// checkShape looks at brackets only: an object that is not deep. It runs before
// anything is parsed.
func checkShape(b []byte) error {
	depth, text := 0, false
	b = bytes.TrimLeft(b, " \t\r\n")
	if len(b) == 0 || b[0] != '{' {
		return errors.New("the body is no JSON object")
	}
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case text && c == '\\':
			i++
		case c == '"':
			text = !text
		case text:
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return fmt.Errorf("the body is nested deeper than %d", maxDepth)
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}

func field(m protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	if f := m.Fields().ByName(protoreflect.Name(name)); f != nil {
		return f
	}
	return m.Fields().ByJSONName(name)
}

// checkMember refuses the spellings of numbers and durations that say the same in
// another way, or something else than they seem to.
func checkMember(f protoreflect.FieldDescriptor, raw json.RawMessage) error {
	value := string(raw)
	var text string
	isText := json.Unmarshal(raw, &text) == nil && strings.HasPrefix(value, `"`)
	switch {
	case value == "null": // as if it were not there
	case isDuration(f):
		if isText && tooLong.MatchString(text) && !aDuration.MatchString(text) {
			return fmt.Errorf("%s %s: want at most 12 digits before the point and 9 behind it", f.Name(), plain(value))
		}
		if !isText || !aDuration.MatchString(text) {
			return fmt.Errorf(`%s %s: want seconds with the unit s, such as "30s" or "0.5s"`, f.Name(), plain(value))
		}
	case isNumber(f):
		if isText {
			value = text
		}
		return checkNumber(f, value)
	}
	return nil
}

// checkNumber wants a number that fits. What the authority makes of it is its own
// matter.
func checkNumber(f protoreflect.FieldDescriptor, text string) error {
	bits := 64
	if f.Kind() == protoreflect.Uint32Kind {
		bits = 32
	}
	if !aNumber.MatchString(text) {
		return fmt.Errorf("%s %s: want a decimal number", f.Name(), plain(text))
	}
	if _, err := strconv.ParseUint(text, 10, bits); err != nil {
		return fmt.Errorf("%s %s: want a number up to %d", f.Name(), plain(text), ^uint64(0)>>(64-bits))
	}
	return nil
}

func isDuration(f protoreflect.FieldDescriptor) bool {
	return f.Message() != nil && f.Message().FullName() == "google.protobuf.Duration"
}

func isNumber(f protoreflect.FieldDescriptor) bool {
	return f.Kind() == protoreflect.Uint64Kind || f.Kind() == protoreflect.Uint32Kind
}

// checkQuery wants every parameter once, and each to be one of the message.
func checkQuery(query url.Values, m protoreflect.MessageDescriptor) error {
	seen := map[protoreflect.Name]bool{}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		f := field(m, name)
		if f == nil {
			return fmt.Errorf("there is no parameter %q", plain(name))
		}
		if seen[f.Name()] || len(query[name]) != 1 {
			return fmt.Errorf("the parameter %q is there twice", plain(name))
		}
		seen[f.Name()] = true
		switch v := query[name][0]; {
		case isNumber(f):
			if err := checkNumber(f, v); err != nil {
				return fmt.Errorf("parameter %w", err)
			}
		case f.Kind() == protoreflect.BoolKind && v != "true" && v != "false":
			return fmt.Errorf("parameter %s %q: want true or false", f.Name(), plain(v))
		}
	}
	return nil
}
