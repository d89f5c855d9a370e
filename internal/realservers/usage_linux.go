package realservers

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// kernelProcess is what /proc says of a process.
type kernelProcess struct {
	parent int
	dead   bool
	usage  Usage
}

// usage adds up a process and all that descend from it: PostgreSQL's leave the group.
func usage(pid int) (Usage, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return Usage{}, err
	}
	all := map[int]kernelProcess{}
	for _, e := range entries {
		id, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if b, err := os.ReadFile("/proc/" + e.Name() + "/stat"); err == nil { // else it has ended
			all[id] = readStat(b)
		}
	}
	if p, ok := all[pid]; !ok || p.dead {
		return Usage{}, fmt.Errorf("process %d is not alive", pid)
	}
	var sum Usage
	for id, p := range all {
		if descends(all, id, pid) {
			sum.CPU, sum.RSS = sum.CPU+p.usage.CPU, sum.RSS+p.usage.RSS
		}
	}
	return sum, nil
}

func descends(all map[int]kernelProcess, id, ancestor int) bool {
	for range all { // no further than there are processes
		if id == ancestor {
			return true
		}
		p, ok := all[id]
		if !ok {
			return false
		}
		id = p.parent
	}
	return false
}

// readStat reads "pid (name) state ppid pgrp …"; the name may hold anything.
func readStat(stat []byte) kernelProcess {
	const hertz = 100 // USER_HZ, on every architecture that Go has
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 22 {
		return kernelProcess{dead: true}
	}
	number := func(i int) int64 {
		n, err := strconv.ParseInt(string(fields[i]), 10, 64)
		if err != nil {
			return 0
		}
		return n
	}
	return kernelProcess{
		parent: int(number(1)), dead: fields[0][0] == 'Z' || fields[0][0] == 'X',
		// With what its children took that it has waited for: a connection's, that is over.
		usage: Usage{CPU: time.Duration(number(11)+number(12)+number(13)+number(14)) * time.Second / hertz, RSS: number(21) * int64(os.Getpagesize())},
	}
}
