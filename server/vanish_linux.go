package server

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// giveUp bounds how long what was sent may stay unconfirmed; the kernel's own bound is a
// quarter of an hour, and while it lasts nobody asks whether the peer is there. The
// connections of a listener have what it has.
func giveUp(_, _ string, c syscall.RawConn) error {
	var inner error
	err := c.Control(func(fd uintptr) {
		inner = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(vanished.Milliseconds()))
	})
	return errors.Join(err, inner)
}
