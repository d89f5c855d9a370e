// Package realservers starts real servers as child processes, for tests and
// benchmarks: Redis, ZooKeeper, PostgreSQL, PgBouncer, MariaDB, and etcd with one
// member or three. Each runs on loopback, on a free port, in a temporary directory of
// its own, with the durability that its documentation advises.
//
//	redis, err := realservers.Redis(ctx, realservers.Config{})
//	if err != nil {
//		// a *MissingError names the Debian package to install
//	}
//	defer redis.Stop()
//
// etcd's members, and the load generator for all of them, come from a nested module
// (peers), which [Peers] builds into bin/peers of the checkout when it is needed; the
// product's go.mod never sees them.
//
// # Guarantees
//
// A function returns a server that has answered a question of its own protocol, or an
// error that holds the end of what the server printed; then nothing runs any more.
// [Server.Stop] returns when no process of it is alive and its directory is gone. On
// Linux the processes end, too, when their parent is killed: the kernel signals them,
// and a thread is kept for each so that no other thread's end is mistaken for it. A
// directory that a killed parent left behind is removed by the next start of any
// server. Processes are stopped by their id and process group, never by name.
//
// # Not guaranteed
//
// Elsewhere than on Linux a parent that is killed leaves its servers running. Between
// the choice of a port and the server's listening on it another program can take it;
// the start is then tried again. Servers trust every local user.
package realservers
