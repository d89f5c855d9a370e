package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
)

const (
	// rereadBundle is for how long what was read of a bundle file is used.
	rereadBundle = time.Second
	// usualHint is the refresh hint of a bundle that has none.
	usualHint = 10 * time.Second
)

// readBundle reads a trust bundle from a file.
func readBundle(path string) (grant.Bundle, error) {
	b, err := readSmall(path, grant.MaxBundleBytes)
	if err == nil {
		var bundle grant.Bundle
		if bundle, err = grant.ParseBundle(b); err == nil {
			return bundle, nil
		}
	}
	return grant.Bundle{}, &lastword.Error{
		Code: lastword.CodeInvalid, Message: "bundle file " + path + ": " + reason(err),
		Hint: "the trust bundle is what 'lastword keys export' writes",
	}
}

// bundleFile is a source that reads the file again and again, and gives nothing of a file
// that is too old (R13). How old it is, is how long ago it was written. limit 0 is what
// the bundle says.
func bundleFile(path string, limit time.Duration) (grant.BundleSource, error) {
	read := func(context.Context) ([]byte, error) {
		b, err := youngBundle(path, limit)
		if err != nil {
			return nil, err
		}
		return b.Marshal()
	}
	if _, err := youngBundle(path, limit); err != nil {
		return nil, err
	}
	return grant.NewBundleSource(grant.FetchConfig{Fetch: read, Limit: rereadBundle})
}

func youngBundle(path string, limit time.Duration) (grant.Bundle, error) {
	// Before it is read: what is put in its place meanwhile is younger.
	info, err := os.Stat(path)
	now := time.Now()
	b, bad := readBundle(path)
	if bad != nil || err != nil {
		return b, bad
	}
	if limit == 0 {
		hint := b.RefreshHint()
		if hint == 0 {
			hint = usualHint
		}
		limit = spread * hint
	}
	// The clock of who wrote it may be another one: a little ahead is no harm, and more
	// is no time that can be trusted.
	age := now.Sub(info.ModTime())
	if age < limit && age > -limit {
		return b, nil
	}
	why := fmt.Sprintf("it was written %s ago, and is not believed for longer than %s", spanText(age.Round(time.Second)), spanText(limit))
	if age < 0 {
		why = "it was written in the future by the clock of this host"
	}
	return grant.Bundle{}, &lastword.Error{
		Code: lastword.CodeUnavailable, Message: "bundle file " + path + ": " + why,
		Hint: "write it anew with 'lastword keys export', or admit an older one with --bundle-max-age",
	}
}
