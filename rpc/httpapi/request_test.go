package httpapi_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/rpc/httpapi"
)

// untouched is an authority that is not to be asked.
func untouched(t *testing.T) *fake {
	f := &fake{}
	f.acquire = func(_ context.Context, r lastword.AcquireRequest) (lastword.Tenure, error) {
		t.Errorf("the authority was asked for %+v", r)
		return lastword.Tenure{}, lastword.ErrInternal
	}
	f.renew = func(_ context.Context, r lastword.TenureRef) (lastword.Tenure, error) {
		t.Errorf("the authority was asked for %+v", r)
		return lastword.Tenure{}, lastword.ErrInternal
	}
	f.status = func(_ context.Context, q lastword.StatusQuery) (lastword.Status, error) {
		t.Errorf("the authority was asked about %+v", q)
		return lastword.Status{}, lastword.ErrInternal
	}
	return f
}

// KF-20 over HTTP: no duration that is not plainly one reaches the authority, and none
// becomes 0, negative, or another one. What is above the authority's own bounds is
// refused there (TestKF20DurationsAboveTheBoundsAreRefusedOverHTTP in server).
func TestKF20DurationsThatAreNoneAreRefusedOverHTTP(t *testing.T) {
	t.Parallel()
	d := open(t, untouched(t), httpapi.Config{})
	for _, value := range []string{
		`"30"`, `30`, `30.5`, `"-1s"`, `"-0s"`, `"+5s"`, `"NaN"`, `"NaNs"`, `NaN`, `"Infinity"`, `"inf s"`, `"1e3s"`, `"1e400s"`, `1e400`,
		`"1h"`, `"1m30s"`, `"100000h"`, `"500ms"`, `".5s"`, `"5.s"`, `" 30s"`, `"30s "`, `"30 s"`, `"30S"`, `"0x1es"`, `"3_0s"`, `"٣٠s"`, `"007s"`,
		`"0.0000000001s"`, `"s"`, `""`, `true`, `[]`, `{}`, `{"seconds":30}`, `{"seconds":"30","nanos":0}`,
		`"1125899906842624000ms"`, `"9007199254740992s"`, `"4611686018427387904s"`, `"9223372036854775807s"`, `"315576000001s"`, `"999999999999s"`,
		`"` + strings.Repeat("9", 40) + `s"`, `"0.` + strings.Repeat("0", 40) + `1s"`,
	} {
		for _, name := range []string{"ttl", "wait"} {
			a := d.post("/v1/acquire", fmt.Sprintf(`{"resource":"doc/a","owner":"w1","request_id":"r1","%s":%s}`, name, value))
			if a.status != http.StatusBadRequest || a.object["reason"] != "INVALID" {
				t.Errorf("%s %s: %s", name, value, a)
			}
		}
	}
}

func TestDurationsArriveExactly(t *testing.T) {
	t.Parallel()
	var got lastword.AcquireRequest
	f := granting()
	f.acquire = func(_ context.Context, r lastword.AcquireRequest) (lastword.Tenure, error) {
		got = r
		return granted(r), nil
	}
	d := open(t, f, httpapi.Config{})
	for text, want := range map[string]time.Duration{
		`"30s"`: 30 * time.Second, `"0.5s"`: 500 * time.Millisecond, `"0.000000001s"`: 1, `"86400s"`: 24 * time.Hour, `"0s"`: 0, `null`: 0,
		`"9223372036.854775807s"`: 1<<63 - 1,
	} {
		a := d.post("/v1/acquire", `{"resource":"doc/a","owner":"w1","request_id":"r1","ttl":`+text+`}`)
		if a.status != http.StatusOK || got.TTL != want {
			t.Errorf("%s: %s, arrived as %v", text, a, got.TTL)
		}
	}
}

// KF-18 at the HTTP door: numbers in and out, to the last digit.
func TestKF18NumbersAreExactOverHTTP(t *testing.T) {
	t.Parallel()
	var got lastword.Token
	f := granting()
	f.renew = func(_ context.Context, r lastword.TenureRef) (lastword.Tenure, error) {
		got = r.Fence
		return lastword.Tenure{TenureRef: r, State: lastword.StateHeld, Revision: 1<<53 + 1}, nil
	}
	d := open(t, f, httpapi.Config{})
	body := func(fence string) string {
		return `{"resource":"doc/a","owner":"w1","request_id":"r1","lease_id":"l1","fence":` + fence + `}`
	}
	for _, digits := range []string{"1", "9007199254740989", "9007199254740990", "9007199254740991"} {
		for _, spelt := range []string{digits, `"` + digits + `"`} {
			a := d.post("/v1/renew", body(spelt))
			tenure, _ := a.object["tenure"].(map[string]any)
			if fmt.Sprint(uint64(got)) != digits || tenure["fence"] != digits || tenure["revision"] != "9007199254740993" {
				t.Errorf("%s: arrived as %d, answered %s", spelt, got, a)
			}
		}
	}
	a := d.post("/v1/acquire", acquireBody)
	if tenure, _ := a.object["tenure"].(map[string]any); tenure["revision"] != "18446744073709551615" || tenure["fence"] != "9007199254740991" {
		t.Errorf("acquire: %s", a)
	}
	got = 0
	for _, wrong := range []string{
		"0", `"0"`, "-1", `"-1"`, "-0", "1e3", `"1e3"`, "1.0", `"1.0"`, `"007"`, "007", `" 7"`, `"7 "`, `"0x7"`, `"+7"`, `""`, "true", "[7]",
		"9007199254740992", `"9007199254740992"`, "9223372036854775807", `"18446744073709551615"`, `"18446744073709551616"`, strings.Repeat("9", 40), "NaN",
	} {
		if a := d.post("/v1/renew", body(wrong)); a.status != http.StatusBadRequest || got != 0 {
			t.Errorf("fence %s: %s; the authority was asked for %d", wrong, a, got)
		}
	}
}

func TestWhatIsNotUnderstoodIsRefused(t *testing.T) {
	t.Parallel()
	d := open(t, untouched(t), httpapi.Config{})
	for _, body := range []string{
		``, ` `, `{`, `}`, `[]`, `null`, `"x"`, `7`, `{}`, `{"resource":"doc/a"`, `{"resource":"doc/a"}}`, acquireBody + acquireBody, acquireBody + "x",
		strings.Replace(acquireBody, `"ttl"`, `"tll"`, 1), strings.Replace(acquireBody, `"ttl"`, `"TTL"`, 1),
		strings.Replace(acquireBody, `"owner":"w1"`, `"owner":"w1","owner":"w2"`, 1),
		strings.Replace(acquireBody, `"owner":"w1"`, `"request_id":"w1","requestId":"w2"`, 1),
		strings.Replace(acquireBody, `"w1"`, `7`, 1), strings.Replace(acquireBody, `"w1"`, `["w1"]`, 1), strings.Replace(acquireBody, `w1`, "\xff", 1),
		strings.Replace(acquireBody, `w1`, `\ud800`, 1), strings.Replace(acquireBody, `w1`, `w\u0000`, 1), strings.Replace(acquireBody, `doc/a`, `doc/../a`, 1),
		strings.Replace(acquireBody, `doc/a`, `/a`, 1), strings.Replace(acquireBody, `doc/a`, `a/`, 1), strings.Replace(acquireBody, `doc/a`, `a//b`, 1),
		"\ufeff" + acquireBody, `{"resource":"doc/a",}`, `{'resource':'doc/a'}`, `{"a":{"b":{"c":{}}}}`,
	} {
		a := d.post("/v1/acquire", body)
		if a.status != http.StatusBadRequest {
			t.Errorf("%q: %s", body, a)
			continue
		}
		wantProblem(t, a, http.StatusBadRequest, "INVALID", "not_done")
	}
	for _, query := range []string{
		"", "?resource=", "?resource=doc/a&x=1", "?resource=doc/a&resource=doc/b", "?resource=doc/a&lease_id=1&leaseId=2", "?resource=%zz", "?resource=a;b=c",
		"?resource=doc/../a", "?resource=%ff", "?resource.x=1", "?resource[]=a",
	} {
		a := d.get("/v1/status" + query)
		wantProblem(t, a, http.StatusBadRequest, "INVALID", "not_done")
	}
	wantProblem(t, d.get("/v1/leases?limit=1e3"), http.StatusBadRequest, "INVALID", "not_done")
	wantProblem(t, d.get("/v1/leases?all=1"), http.StatusBadRequest, "INVALID", "not_done")
	wantProblem(t, d.post("/v1/acquire?resource=doc/b", acquireBody), http.StatusBadRequest, "INVALID", "not_done")
	wantProblem(t, d.do(d.request(http.MethodGet, "/v1/status?resource=doc/a", "{}")), http.StatusBadRequest, "INVALID", "not_done")
}

func TestMethodsPathsAndMediaTypesAreLookedAt(t *testing.T) {
	t.Parallel()
	d := open(t, untouched(t), httpapi.Config{})
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodHead, http.MethodOptions} {
		a := d.do(d.request(method, "/v1/acquire", ""))
		if a.status != http.StatusMethodNotAllowed || a.header.Get("Allow") != "POST" {
			t.Errorf("%s: %s, Allow %q", method, a, a.header.Get("Allow"))
		}
	}
	wantProblem(t, d.post("/v1/status", "{}"), http.StatusMethodNotAllowed, "INVALID", "not_done")
	wantProblem(t, d.post("/openapi.json", "{}"), http.StatusMethodNotAllowed, "INVALID", "not_done")
	r := d.request(http.MethodPost, "/v1/status", "{}")
	r.Header.Set("X-HTTP-Method-Override", "GET")
	wantProblem(t, d.do(r), http.StatusMethodNotAllowed, "INVALID", "not_done")
	for _, path := range []string{"/", "/v1", "/v1/", "/v1/acquire/", "/v1/Acquire", "//v1/acquire", "/v1/session", "/v1/acquire:x", "/lastword.v1.AuthorityService/Acquire"} {
		wantProblem(t, d.post(path, acquireBody), http.StatusNotFound, "INVALID", "not_done")
	}
	for _, kind := range []string{"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/json; charset=latin1", "application/jsonx", "json"} {
		r := d.request(http.MethodPost, "/v1/acquire", acquireBody)
		r.Header.Set("Content-Type", kind)
		wantProblem(t, d.do(r), http.StatusUnsupportedMediaType, "INVALID", "not_done")
	}
	r = d.request(http.MethodPost, "/v1/acquire", acquireBody)
	r.Header.Set("Content-Encoding", "gzip")
	wantProblem(t, d.do(r), http.StatusUnsupportedMediaType, "INVALID", "not_done")
}

// T22: the size and the depth of a body are looked at before it is parsed.
func TestT22GiantAndDeepBodiesAreRefusedBeforeTheyAreParsed(t *testing.T) {
	t.Parallel()
	d := open(t, untouched(t), httpapi.Config{})
	large := strings.Replace(acquireBody, "w1", strings.Repeat("x", 64<<10), 1)
	wantProblem(t, d.post("/v1/acquire", large), http.StatusRequestEntityTooLarge, "INVALID", "not_done")
	r := d.request(http.MethodPost, "/v1/acquire", "")
	r.Body, r.ContentLength = io.NopCloser(io.LimitReader(endless{}, 1<<30)), -1 // chunked, and nobody knows how long
	if res, err := d.client.Do(r); err == nil {
		if res.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("a gigabyte in chunks: %d", res.StatusCode)
		}
		_ = res.Body.Close()
	} // or the connection was cut while the client still wrote
	for _, deep := range []string{
		strings.Repeat(`{"a":`, 5) + "1" + strings.Repeat("}", 5), `{"a":` + strings.Repeat("[", 30_000), strings.Repeat(`{"a":`, 13_000),
	} {
		a := d.post("/v1/acquire", deep)
		wantProblem(t, a, http.StatusBadRequest, "INVALID", "not_done")
		if !strings.Contains(a.text, "nested deeper than 4") {
			t.Error(a.text)
		}
	}
	r = d.request(http.MethodPost, "/v1/acquire", acquireBody)
	r.Header.Set("X-Large", strings.Repeat("x", 32<<10))
	res, err := d.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close() // its end may be lost with the connection
	if res.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("large headers: %d", res.StatusCode)
	}
	wantProblem(t, d.post("/v1/acquire", strings.Replace(acquireBody, "w1", strings.Repeat("x", 513), 1)), http.StatusBadRequest, "INVALID", "not_done")
}

type endless struct{}

func (endless) Read(b []byte) (int, error) { return copy(b, bytes.Repeat([]byte("x"), len(b))), nil }

// T22, slowloris: who sends headers or a body without end is cut off, and others are
// served meanwhile.
func TestT22SlowRequestsAreCutOff(t *testing.T) {
	t.Parallel()
	d := open(t, granting(), httpapi.Config{RequestTimeout: 300 * time.Millisecond})
	for name, head := range map[string]string{
		"headers": "POST /v1/acquire HTTP/1.1\r\nHost: " + d.addr + "\r\nX-Slow: ",
		"body":    "POST /v1/acquire HTTP/1.1\r\nHost: " + d.addr + "\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"resource\":",
		"chunks":  "POST /v1/acquire HTTP/1.1\r\nHost: " + d.addr + "\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			c, err := net.Dial("tcp", d.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			_ = c.SetDeadline(time.Now().Add(patience))
			if _, err := io.WriteString(c, head); err != nil {
				t.Fatal(err)
			}
			if a := d.post("/v1/acquire", acquireBody); a.status != http.StatusOK {
				t.Errorf("another one, meanwhile: %s", a)
			}
			all, err := io.ReadAll(c) // until the server closes it
			if err != nil {
				t.Fatalf("it is not cut off: %v", err)
			}
			if name == "headers" {
				return // net/http says nothing, or 408
			}
			if !bytes.HasPrefix(all, []byte("HTTP/1.1 408 ")) {
				t.Errorf("it says %q", all)
			}
		})
	}
}

// The time limit of a body is none for the answer: a call that waits is not cut off.
func TestAWaitIsNotEndedByTheTimeLimitsOfRequests(t *testing.T) {
	t.Parallel()
	f := granting()
	wake := make(chan struct{})
	f.acquire = func(ctx context.Context, r lastword.AcquireRequest) (lastword.Tenure, error) {
		select {
		case <-wake:
			return granted(r), nil
		case <-ctx.Done():
			return lastword.Tenure{}, &lastword.Error{Code: lastword.CodeUnavailable, Message: "gone"}
		}
	}
	const limit = 300 * time.Millisecond
	d := open(t, f, httpapi.Config{RequestTimeout: limit, WriteTimeout: limit, MaxIdle: limit})
	go func() {
		time.Sleep(6 * limit) // longer than every limit
		close(wake)
	}()
	if a := d.post("/v1/acquire", waitBody); a.status != http.StatusOK {
		t.Errorf("got %s", a)
	}
}

// The routes that the door checks are those that the transcoder was generated with.
func TestTheOpenAPIFileHasEveryRouteAndIsServed(t *testing.T) {
	t.Parallel()
	d := open(t, untouched(t), httpapi.Config{})
	a := d.get("/openapi.json")
	b, err := os.ReadFile("openapi.swagger.json")
	if err != nil || a.text != string(b) || a.header.Get("Content-Type") != "application/json" {
		t.Fatalf("it is not what is served: %v", err)
	}
	var spec struct {
		Paths map[string]map[string]struct {
			Responses map[string]any
		}
	}
	if err := json.Unmarshal(b, &spec); err != nil {
		t.Fatal(err)
	}
	routes := httpapi.Routes()
	if len(spec.Paths) != len(routes) {
		t.Errorf("%d paths in the file, %d routes", len(spec.Paths), len(routes))
	}
	for path, method := range routes {
		call, ok := spec.Paths[path][strings.ToLower(method)]
		if !ok || len(spec.Paths[path]) != 1 || call.Responses["default"] == nil {
			t.Errorf("%s %s is not in the file, or not as it is", method, path)
		}
	}
}

// Several requests behind each other on one connection are each answered.
func TestRequestsOfOneConnectionAreAnsweredInOrder(t *testing.T) {
	t.Parallel()
	d := open(t, granting(), httpapi.Config{})
	c, err := net.Dial("tcp", d.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(patience))
	one := fmt.Sprintf("POST /v1/acquire HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", d.addr, len(acquireBody), acquireBody)
	if _, err := io.WriteString(c, one+one+one); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(c)
	for range 3 {
		res, err := http.ReadResponse(in, nil)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("got %v, %v", res, err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
	}
}
