package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

// outFlags are --out and --force of a command whose result can be stored.
type outFlags struct {
	path  string
	force bool
}

func (f *outFlags) add(cmd *cobra.Command, what string) {
	cmd.Flags().StringVar(&f.path, "out", "", "store "+what+" in `FILE`")
	cmd.Flags().BoolVar(&f.force, "force", false, "overwrite the file of --out")
}

// reserve opens what --out will become, before anything runs; nil if it is not asked
// for.
func (f *outFlags) reserve(cmd *cobra.Command) (*outFile, error) {
	if !cmd.Flags().Changed("out") {
		if f.force {
			return nil, usage(cmd, "--force without --out")
		}
		return nil, nil
	}
	file, err := reserveOut(f.path, f.force)
	if err != nil {
		return nil, usage(cmd, "--out: %s", err)
	}
	return file, nil
}

// outFile is a result on its way: a temporary file. Nothing stands at its path until
// commit. A nil one is a result that nobody wants to keep.
type outFile struct {
	path string
	tmp  *os.File
}

func reserveOut(path string, force bool) (*outFile, error) {
	info, err := os.Stat(path)
	switch {
	case path == "":
		return nil, errors.New("it names no file")
	case err == nil && !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file", quoted(clip(path)))
	case err == nil && !force:
		return nil, fmt.Errorf("%s exists: name another file, or overwrite it with --force", quoted(clip(path)))
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s cannot be made: %w", quoted(clip(path)), pathless(err))
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".lastword-out-*")
	if err != nil {
		return nil, fmt.Errorf("%s cannot be made: %w", quoted(clip(path)), pathless(err))
	}
	return &outFile{path: path, tmp: tmp}, nil
}

// commit makes the file, whole, or leaves nothing.
func (f *outFile) commit(write func(io.Writer) error) error {
	if f == nil {
		return nil
	}
	const everybody = 0o644
	err := errors.Join(write(f.tmp), f.tmp.Chmod(everybody), f.tmp.Close())
	if err == nil {
		err = os.Rename(f.tmp.Name(), f.path)
	}
	return err
}

// discard removes what was not committed.
func (f *outFile) discard() {
	if f == nil {
		return
	}
	_ = f.tmp.Close()
	_ = os.Remove(f.tmp.Name())
}
