package identity

import (
	"net"
	"net/netip"
	"slices"
	"strings"
)

// The bounds of RFC 1035.
const (
	maxHostBytes  = 253
	maxLabelBytes = 63
)

// CheckHost reports whether s is a plain host name or an IP address: no port, no
// brackets, no wildcard, no final dot. The error has [lastword.CodeInvalid].
func CheckHost(s string) error {
	_, _, err := splitHosts([]string{s})
	return err
}

// splitHosts sorts names from addresses, each once.
func splitHosts(hosts []string) (names []string, addresses []net.IP, err error) {
	if len(hosts) > MaxHosts {
		return nil, nil, invalid("%d hosts: want %d at most", len(hosts), MaxHosts)
	}
	for _, h := range hosts {
		if at, err := netip.ParseAddr(h); err == nil && at.Zone() == "" {
			if ip := net.IP(at.AsSlice()); !slices.ContainsFunc(addresses, ip.Equal) {
				addresses = append(addresses, ip)
			}
			continue
		}
		if !hostName(h) {
			e := invalid("host %q: want a name or an IP address", clip(h))
			e.Hint = "such as db.example.org or 192.0.2.7, without port, brackets or wildcard"
			return nil, nil, e
		}
		if h = strings.ToLower(h); !slices.Contains(names, h) {
			names = append(names, h)
		}
	}
	return names, addresses, nil
}

// hostName reports whether s is a name of letters, digits and hyphens whose last label
// is no number: that would be a broken address.
func hostName(s string) bool {
	if s == "" || len(s) > maxHostBytes {
		return false
	}
	labels := strings.Split(s, ".")
	for _, l := range labels {
		if l == "" || len(l) > maxLabelBytes || l[0] == '-' || l[len(l)-1] == '-' {
			return false
		}
		if strings.ContainsFunc(l, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-'
		}) {
			return false
		}
	}
	return strings.Trim(labels[len(labels)-1], "0123456789") != ""
}
