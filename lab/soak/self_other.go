//go:build !linux

package soak

import "errors"

var errLinuxOnly = errors.New("real rounds need Linux: signals to one thread, and children that end with their parent")

func stopSelf() error { return errLinuxOnly }

func awaitStop(int) (bool, error) { return false, errLinuxOnly }

// supported says whether a run is possible here.
const supported = false
