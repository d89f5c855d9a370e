package server

import (
	"net"
	"time"
)

// vanished bounds how long a peer that says nothing any more, and confirms nothing, is
// taken for one that is there. gRPC asks its peers by itself; what speaks HTTP does not,
// and a call that waits there would wait on for nobody.
const vanished = 30 * time.Second

// listening asks silent peers whether they are there, and gives those up that do not
// confirm what was sent to them.
func listening() net.ListenConfig {
	return net.ListenConfig{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: vanished / 2, Interval: vanished / 6, Count: 3},
		Control:         giveUp,
	}
}
