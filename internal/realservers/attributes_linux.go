package realservers

import "syscall"

func attributes(c Command) *syscall.SysProcAttr {
	orphaned := c.Orphaned
	if orphaned == 0 {
		orphaned = syscall.SIGKILL
	}
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: orphaned, Credential: c.User}
}
