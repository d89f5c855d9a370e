package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed" // the status page
	"encoding/base64"
	"fmt"
	"html/template"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/identity"
)

// pages are what HTTP shows beside the calls.
func (s *Server) pages() map[string]http.Handler {
	return map[string]http.Handler{
		"/{$}":                              s.forListers(http.HandlerFunc(s.statusPage)),
		"/healthz":                          http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, "ok") }),
		"/readyz":                           http.HandlerFunc(s.readyPage),
		"/.well-known/lastword/bundle.json": http.HandlerFunc(s.bundlePage),
		"/metrics":                          s.forListers(s.metrics),
	}
}

// forListers shows a page to those who may list everything, since it shows as much. The
// other pages are for anybody: probes have no certificate, and the bundle is public.
func (s *Server) forListers(page http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.rpc.Allow(r.Context(), identity.List, ""); err != nil {
			if r.TLS != nil {
				w.Header().Set("Connection", "close") // it comes again with the certificate that it has then
			}
			text(w, http.StatusForbidden, err.Error())
			return
		}
		page.ServeHTTP(w, r)
	})
}

func (s *Server) scheme() string {
	if s.identity != nil {
		return "https"
	}
	return "http"
}

// hosts are the names that the listener was given, beside those that always mean this
// machine.
func (s *Server) hosts() []string {
	host, _, _ := net.SplitHostPort(s.cfg.HTTP)
	if _, err := netip.ParseAddr(host); err == nil {
		return nil
	}
	return []string{host}
}

func text(w http.ResponseWriter, code int, line string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = fmt.Fprintln(w, line) // nobody is left to be told
}

// readyPage says whether the authority grants. It asks for a status, which is
// answered only by an authority that still has its epoch and its store, and then whether
// it waits, or could not write.
func (s *Server) readyPage(w http.ResponseWriter, r *http.Request) {
	const patience = 2 * time.Second
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	epoch, err := s.authority.Epoch()
	if err == nil {
		_, err = s.authority.Status(ctx, lastword.StatusQuery{Resource: "readyz"})
	}
	if err == nil {
		err = s.authority.Granting()
	}
	if err != nil {
		why := ": " + err.Error()
		if s.cfg.identified() {
			why = "" // who asks may be anybody
		}
		text(w, http.StatusServiceUnavailable, "not ready"+why)
		return
	}
	text(w, http.StatusOK, fmt.Sprintf("ready, issuer epoch %d", epoch))
}

// bundlePage is the trust bundle, for verifiers in every language. It may be kept for
// as long as a verifier would keep it.
func (s *Server) bundlePage(w http.ResponseWriter, r *http.Request) {
	b, err := s.authority.Bundle(r.Context())
	if err != nil {
		text(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	bundle, err := grant.ParseBundle(b)
	if err != nil {
		text(w, http.StatusInternalServerError, "the trust bundle is broken")
		return
	}
	w.Header().Set("Content-Type", "application/jwk-set+json")
	w.Header().Set("Cache-Control", fmt.Sprintf("public, max-age=%d", int(bundle.RefreshHint().Seconds())))
	_, _ = w.Write(b)
}

//go:embed status.html
var statusText string

//go:embed status.css
var statusStyle string

var statusTemplate = template.Must(template.New("status").Parse(statusText))

// statusPolicy lets the page have its own style and nothing else: no script, no
// frame, no form, nothing from elsewhere.
var statusPolicy = func() string {
	sum := sha256.Sum256([]byte(statusStyle))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}()

// shownLeases bounds the table of the status page.
const shownLeases = 50

// lease is one line of the table.
type lease struct {
	Resource, Owner, Fence, Remaining string
	Waiters                           int
}

// held are the first of the leases that are held, and whether there are more.
func (s *Server) held(ctx context.Context) (all []lease, more bool, err error) {
	page, err := s.authority.List(ctx, lastword.ListQuery{Limit: shownLeases})
	if err != nil {
		return nil, false, err
	}
	for _, st := range page.Resources {
		all = append(all, lease{
			string(st.Resource), st.Holder.Owner, st.Holder.Fence.Text(), st.Remaining.Round(time.Second).String(), st.Waiters,
		})
	}
	return all, page.Next != "", nil
}

// statusPage tells who is here, what is held, and how to call it.
func (s *Server) statusPage(w http.ResponseWriter, r *http.Request) {
	const patience = 2 * time.Second
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	epoch, err := s.authority.Epoch()
	var leases []lease
	var more bool
	if err == nil {
		leases, more, err = s.held(ctx)
	}
	var page bytes.Buffer // whole or not
	if failed := statusTemplate.Execute(&page, struct {
		Style              template.CSS
		Domain, GRPC, HTTP string
		Scheme             string
		Epoch              uint32
		Err                error
		Leases             []lease
		More               bool
	}{template.CSS(statusStyle), s.cfg.Domain, s.Addr().String(), s.HTTPAddr().String(), s.scheme(), epoch, err, leases, more}); failed != nil {
		text(w, http.StatusInternalServerError, "the page is broken")
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", statusPolicy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	_, _ = w.Write(page.Bytes())
}
