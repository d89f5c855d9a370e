package realservers

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// usage adds up the processes of a group, as /proc shows them.
func usage(group int) (Usage, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return Usage{}, err
	}
	var u Usage
	found := false
	for _, e := range entries {
		if e.Name()[0] < '1' || e.Name()[0] > '9' {
			continue
		}
		b, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // it has ended
		}
		if one, ok := member(b, group); ok {
			u.CPU, u.RSS, found = u.CPU+one.CPU, u.RSS+one.RSS, true
		}
	}
	if !found {
		return Usage{}, fmt.Errorf("no process of group %d is alive", group)
	}
	return u, nil
}

// member reads "pid (name) state ppid pgrp …"; the name may hold anything.
func member(stat []byte, group int) (Usage, bool) {
	const hertz = 100 // USER_HZ, on every architecture that Go has
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 22 {
		return Usage{}, false
	}
	number := func(i int) int64 {
		n, err := strconv.ParseInt(string(fields[i]), 10, 64)
		if err != nil {
			return 0
		}
		return n
	}
	if number(2) != int64(group) || fields[0][0] == 'Z' {
		return Usage{}, false
	}
	return Usage{
		CPU: time.Duration(number(11)+number(12)) * time.Second / hertz,
		RSS: number(21) * int64(os.Getpagesize()),
	}, true
}
