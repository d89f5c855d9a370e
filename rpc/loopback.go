package rpc

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/lastword/lastword"
)

// LoopbackOnly refuses every listen address, "host:port", that others than this
// machine could reach: without identities that the transport proves, an owner is what
// a caller says. Fine are localhost, 127.0.0.0/8, ::1, and a host name of which every
// address is loopback; an empty host and the unspecified addresses are not. A
// name can change its meaning until it is listened on: [Server.Serve] looks again.
// The error is [lastword.CodeInvalid].
func LoopbackOnly(addr string) error {
	host, err := splitAddress(addr)
	switch {
	case err != nil:
		return err
	case host == "localhost":
		return nil
	case host == "":
		return notLoopback(addr, "without a host it is every address of this machine")
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		if !ip.Unmap().IsLoopback() {
			return notLoopback(addr, "it is not a loopback address")
		}
		return nil
	}
	const patience = 2 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil || len(ips) == 0 {
		return notLoopback(addr, "its host name has no known address")
	}
	for _, ip := range ips {
		if !ip.Unmap().IsLoopback() {
			return notLoopback(addr, "its host name leads to "+ip.String())
		}
	}
	return nil
}

func notLoopback(addr, why string) error {
	err := invalid("listen address %q: %s, and without identities anybody who reaches it could act as any owner", addr, why)
	err.Hint = "listen on 127.0.0.1, [::1] or localhost"
	return err
}

// splitAddress is the host of addr, whose port must be a number.
func splitAddress(addr string) (host string, err error) {
	host, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return "", &lastword.Error{Code: lastword.CodeInvalid, Message: fmt.Sprintf("address %q: want host:port", clip(addr, 64)), Hint: "such as 127.0.0.1:7420"}
	}
	return host, nil
}
