package httpapi_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lastword/lastword/rpc/httpapi"
)

// unread are requests whose body is announced and never sent, and that are answered
// without it.
var unread = map[string]struct {
	line, header string
	status       int
}{
	"a page":            {"GET /healthz", "", http.StatusBadRequest},
	"no page":           {"POST /nope", "", http.StatusNotFound},
	"a watch":           {"GET /v1/watch", "", http.StatusBadRequest},
	"a wrong method":    {"PUT /v1/acquire", "", http.StatusMethodNotAllowed},
	"a foreign host":    {"POST /v1/acquire", "Host: evil.example\r\n", http.StatusMisdirectedRequest},
	"no JSON":           {"POST /v1/acquire", "Content-Type: text/plain\r\n", http.StatusUnsupportedMediaType},
	"a query":           {"POST /v1/acquire?x=1", "Content-Type: application/json\r\n", http.StatusBadRequest},
	"a page's chunks":   {"HEAD /healthz", "Transfer-Encoding: chunked\r\n", http.StatusBadRequest},
	"a promise to wait": {"POST /nope", "Expect: 100-continue\r\n", http.StatusNotFound},
}

func withHealth() httpapi.Config {
	return httpapi.Config{Pages: map[string]http.Handler{"/healthz": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })}}
}

func (d *door) announce(line, header string) net.Conn {
	d.t.Helper()
	c, err := net.Dial("tcp", d.addr)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	if !strings.Contains(header, "Host:") {
		header += "Host: localhost\r\n"
	}
	if !strings.Contains(header, "Transfer-Encoding:") {
		header += "Content-Length: 5000\r\n"
	}
	if _, err := fmt.Fprintf(c, "%s HTTP/1.1\r\n%s\r\n", line, header); err != nil {
		d.t.Fatal(err)
	}
	return c
}

// T22: who announces a body and does not send it is answered at once and closed soon,
// although nobody reads that body.
func TestT22ABodyThatNobodyReadsHoldsUpNothing(t *testing.T) {
	t.Parallel()
	cfg := withHealth()
	cfg.RequestTimeout = 300 * time.Millisecond
	for name, u := range unread {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t, untouched(t), cfg)
			begun := time.Now()
			c := d.announce(u.line, u.header)
			in := bufio.NewReader(c)
			r, _ := http.NewRequest(strings.Fields(u.line)[0], "/", nil)
			res, err := http.ReadResponse(in, r)
			if err != nil {
				t.Fatal(err)
			}
			if res.StatusCode != u.status || !res.Close {
				t.Errorf("got %s, closing %v; want %d and the end of the connection", res.Status, res.Close, u.status)
			}
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
			if _, err := in.ReadByte(); err != io.EOF {
				t.Errorf("it is not closed: %v", err)
			}
			if took := time.Since(begun); took > 8*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// T22: neither do they hold up a shutdown, nor does one whose body is waited for.
func TestT22ABodyThatDoesNotComeDoesNotHoldUpAShutdown(t *testing.T) {
	t.Parallel()
	d := open(t, untouched(t), withHealth())
	for _, u := range unread {
		c := d.announce(u.line, u.header)
		if _, err := bufio.NewReader(c).ReadByte(); err != nil {
			t.Fatal(err)
		}
	}
	slow := d.announce("POST /v1/acquire", "Content-Type: application/json\r\nExpect: 100-continue\r\n")
	in := bufio.NewReader(slow)
	if line, err := in.ReadString('\n'); err != nil || !strings.Contains(line, " 100 ") {
		t.Fatalf("it is not read: %q, %v", line, err)
	}
	begun := time.Now()
	if err := d.http.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took > 4*time.Second {
		t.Errorf("it took %v", took)
	}
	_, _ = in.ReadString('\n')
	if res, err := http.ReadResponse(in, nil); err != nil || res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("who was waited for got %v, %v", res, err)
	} else {
		_ = res.Body.Close()
	}
}

func TestAHostHeaderIsReadStrictly(t *testing.T) {
	t.Parallel()
	d := open(t, untouched(t), httpapi.Config{})
	for _, host := range []string{"[::1", "::1", "::1]", "[::1]x", "[::1]:", "[127.0.0.1]", "localhost:abc", "localhost:", "localhost:1:2", "localhost:99999", "127.0.0.1:-1", "[localhost]", ""} {
		c, err := net.Dial("tcp", d.addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(patience))
		_, _ = fmt.Fprintf(c, "GET /openapi.json HTTP/1.1\r\nHost: %s\r\n\r\n", host)
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatalf("Host %q: %v", host, err)
		}
		_ = errors.Join(res.Body.Close(), c.Close())
		if res.StatusCode != http.StatusMisdirectedRequest && res.StatusCode != http.StatusBadRequest {
			t.Errorf("Host %q: %s", host, res.Status)
		}
	}
}

func TestNothingIsRedirected(t *testing.T) {
	t.Parallel()
	d := open(t, untouched(t), withHealth())
	d.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for _, path := range []string{"//healthz", "/./healthz", "/x/../healthz", "/healthz/", "/healthz//"} {
		wantProblem(t, d.get(path), http.StatusNotFound, "INVALID", "not_done")
	}
	r := d.request(http.MethodOptions, "/", "")
	r.URL.Opaque = "*"
	if a := d.do(r); a.status != http.StatusNotFound {
		t.Errorf("OPTIONS *: %s", a)
	}
}

// The bound of the headers is the one that docs/http.md states.
func TestT22HeadersMayHave16KiB(t *testing.T) {
	t.Parallel()
	d := open(t, untouched(t), withHealth())
	for size, want := range map[int]int{15 << 10: http.StatusOK, 16<<10 + 200: http.StatusRequestHeaderFieldsTooLarge} {
		r := d.request(http.MethodGet, "/healthz", "")
		r.Header.Set("X-Large", strings.Repeat("x", size))
		res, err := d.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%d bytes: %s, want %d", size, res.Status, want)
		}
	}
}

// What is refused is told in words of this door, and those that fit.
func TestARefusalSaysWhatIsWanted(t *testing.T) {
	t.Parallel()
	d := open(t, untouched(t), httpapi.Config{})
	for path, want := range map[string]string{
		"/v1/leases?all=1":                         `parameter all "1": want true or false"`,
		"/v1/leases?limit=x":                       `parameter limit x: want a decimal number"`,
		"/v1/leases?limit=4294967296":              `parameter limit 4294967296: want a number up to 4294967295"`,
		"/v1/leases?limit=99999999999999999999":    `want a number up to 4294967295"`,
		"/v1/leases?limit=99999999999999999999999": `want a decimal number"`,
	} {
		a := d.get(path)
		if text, _ := json.Marshal(a.object["detail"]); !strings.Contains(strings.ReplaceAll(string(text), `\"`, `"`), want) {
			t.Errorf("%s: %s", path, a)
		}
	}
	for member, want := range map[string]string{
		`"ttl":"9007199254740992s"`: `want at most 12 digits before the point`,
		`"ttl":"0.0000000001s"`:     `and 9 behind it`,
		`"ttl":"1h"`:                `want seconds with the unit s`,
	} {
		a := d.post("/v1/acquire", `{"resource":"doc/a","owner":"w1","request_id":"r1",`+member+`}`)
		if text := fmt.Sprint(a.object["detail"]); !strings.Contains(text, want) {
			t.Errorf("%s: %s", member, text)
		}
	}
}
