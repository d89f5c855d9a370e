//go:build !linux

package realservers

import "errors"

func usage(int) (Usage, error) { return Usage{}, errors.ErrUnsupported }
