//go:build !linux

package realservers

import "syscall"

func attributes(c Command) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: c.User}
}
