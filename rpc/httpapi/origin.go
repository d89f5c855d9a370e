package httpapi

import (
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	wire "github.com/lastword/lastword/rpc/lastword/v1"
)

// own refuses what a page of somebody else can make a browser send. A name that the
// page's owner lets point to this machine is not one of ours (DNS rebinding), and a
// page of another origin says so itself.
func (s *Server) own(r *http.Request, op string) *wire.Problem {
	scheme := "http"
	if r.TLS != nil { // another name than the certificate's is refused by the caller's own side
		scheme = "https"
	} else if !s.ownHost(r.Host) {
		return refused(op, http.StatusMisdirectedRequest, "the Host header does not name this machine", "call 127.0.0.1, [::1] or localhost")
	}
	site := r.Header.Get("Sec-Fetch-Site")
	navigates := op == "" && r.Header.Get("Sec-Fetch-Mode") == "navigate" // somebody followed a link to a page
	foreign := site != "" && site != "same-origin" && site != "none" && !navigates
	for _, origin := range r.Header.Values("Origin") {
		foreign = foreign || !strings.EqualFold(origin, scheme+"://"+r.Host)
	}
	if foreign {
		return refused(op, http.StatusForbidden, "a page of another origin must not call this authority", "")
	}
	return nil
}

// ownHost wants a name or an address, the latter in brackets if it has colons, and
// maybe a port; nothing that needs to be guessed.
func (s *Server) ownHost(hostport string) bool {
	host, port, found := strings.Cut(hostport, ":")
	bracketed := strings.HasPrefix(hostport, "[")
	if bracketed {
		var closed bool
		if host, port, closed = strings.Cut(hostport[1:], "]"); !closed {
			return false
		}
		if port, found = strings.CutPrefix(port, ":"); !found && port != "" {
			return false
		}
	}
	if _, err := strconv.ParseUint(port, 10, 16); found && err != nil {
		return false
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Is6() == bracketed && ip.Unmap().IsLoopback()
	}
	return !bracketed && (strings.EqualFold(host, "localhost") ||
		slices.ContainsFunc(s.cfg.Hosts, func(name string) bool { return strings.EqualFold(host, name) }))
}
