// Package guard runs a command, and all that it starts in its process group, under a
// lease: no process of the group runs when the lease is released, and the group is
// ended when the lease is lost. It is the engine of `lastword exec`.
//
//	exit, err := guard.Run(ctx, c, guard.Options{
//		Resource: "nightly/report",
//		Command:  []string{"./report.sh"},
//		Stdout:   os.Stdout, Stderr: os.Stderr,
//	})
//	os.Exit(exit.Code)
//
// # Losing the lease
//
// The command is told to stop by SIGTERM and is killed by SIGKILL after the grace.
// That begins early enough to be over when trust is: while it is not known whether
// the lease is held, SIGTERM is sent when only the grace is left until the local
// deadline. Therefore the grace must be at most half of the TTL: later than that, a
// renewal that has had its full time can still keep the command alive, and earlier
// one that is late would end it.
//
// When the longest hold is reached ([client.AcquireOptions.MaxHold]) or a renewal is
// refused, SIGTERM is sent at once and SIGKILL after the grace. At the end of the longest
// hold that still lies within the tenure. After a revocation, or a cancel of the attempt by
// somebody else, it does not: nobody tells the holder, its next renewal does, a third of the
// TTL later at most, and has a sixth of it for an answer. A lock-delay does not help
// either, which follows an expiry only. So for TTL/3 + TTL/6 and the grace, at most,
// nothing but the fence stands between the command and its successor. A process that finds its lease expired, because
// it was stopped or the machine was suspended, has no time to give: it sends SIGKILL
// without SIGTERM, before anything else.
//
// # Guarantees
//
// The command gets its standard streams as the very files that were given, its own
// process group, and LASTWORD_RESOURCE, LASTWORD_FENCE and LASTWORD_GRANT_FILE in its
// environment. The grant file has mode 0600, lies in a directory of mode 0700, and is
// replaced whole or not at all. It is looked at once a second until the command is told to
// stop, and put back if it, its mode or the directory was removed or changed; where
// something else has taken the directory's name that cannot be done, and
// [Options.Logger] is told once. A signal that is in [Options.Signals] before the command
// was started lets nothing run.
//
// The order at the end is: every process of the group is gone, then the lease is
// released, then [Run] returns. Where the group cannot be ended (a process that hangs
// in the kernel), nothing is released and the lease lapses. If the command ends and
// leaves processes of its group behind, these are ended too, as above. After
// Run nothing is left: no process of the group, no zombie, no goroutine, no file.
//
// On Linux the command itself is killed by the kernel when the process that called
// Run dies, by SIGKILL too. Whatever else is then left of the group runs on; nobody
// releases or renews the lease, so that it lapses within its TTL.
//
// # Not guaranteed
//
// A directory that somebody moved away is emptied, and its empty rest stays there.
// A process that leaves the group (setsid, setpgid, most daemons, containers that
// another process starts) is not seen and not ended. While the process that called
// Run is stopped by SIGSTOP, nobody watches: the command runs on past the end of the
// lease, and only the fence stops its writes; a lock-delay at the authority gives
// resources without a fence a chance, no more. SIGKILL of that process leaves the
// private directory behind. Effects that were sent before the end are not undone.
package guard
