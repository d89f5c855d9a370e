package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
)

// The file of a status proof has the proof alone, on one line. A proof lives for seconds
// and is asked for again and again, so it replaces the one before; any other file stays.

const makeProofFile = "lastword status RESOURCE --grant FILE --proof FILE makes one"

func badProof(op, path, why, hint string) error {
	return &lastword.Error{Code: lastword.CodeInvalid, Op: op, Message: fmt.Sprintf("proof file %s: %s", path, why), Hint: hint}
}

// readProof reads a status proof. What it says is for the gate to judge.
func readProof(op, path string) (string, error) {
	proof, err := proofIn(path)
	if err != nil {
		return "", badProof(op, path, err.Error(), makeProofFile)
	}
	return proof, nil
}

func proofIn(path string) (string, error) {
	b, err := readSmall(path, grant.MaxBytes+1) // and the line's end
	if err != nil {
		return "", err
	}
	if len(bytes.TrimSpace(b)) == 0 {
		return "", errors.New("it is empty")
	}
	proof := strings.TrimSuffix(string(b), "\n")
	if _, err := grant.InspectStatus(proof); err != nil {
		return "", errors.New("it is no status proof: " + reason(err))
	}
	return proof, nil
}

// proofWriter is a proof file on its way: a temporary file that was opened before
// anybody was asked.
type proofWriter struct {
	path string
	tmp  *os.File
}

func reserveProof(path string) (*proofWriter, error) {
	const op = "status"
	info, err := os.Lstat(path)
	switch {
	case path == "" || strings.HasSuffix(path, "/"):
		return nil, badProof(op, path, "it names no file", "")
	case err == nil && info.IsDir():
		return nil, badProof(op, path, "it is a directory", "name a file in it")
	case err == nil && !info.Mode().IsRegular():
		return nil, badProof(op, path, "it is not a regular file", "")
	case err == nil:
		if _, err := proofIn(path); err != nil {
			return nil, badProof(op, path, "it exists, and only a status proof is replaced: "+err.Error(), "name another file")
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, badProof(op, path, pathless(err).Error(), "")
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".lastword-proof-*") // O_EXCL, 0600
	if err != nil {
		return nil, badProof(op, path, "its directory cannot be written to: "+pathless(err).Error(), "")
	}
	return &proofWriter{path: path, tmp: tmp}, nil
}

// commit makes the file, whole, and returns when the proof in it expires. It is not
// synced: after a crash a proof is asked for anew.
func (w *proofWriter) commit(proof string) (time.Time, error) {
	seen, err := grant.InspectStatus(proof)
	if err == nil {
		_, err = w.tmp.WriteString(proof + "\n")
	}
	if err == nil {
		err = w.tmp.Close()
	}
	if err == nil {
		err = os.Rename(w.tmp.Name(), w.path)
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("status: proof file %s: %w", w.path, pathless(err))
	}
	return seen.Claims.Expires, nil
}

// discard removes what was not committed.
func (w *proofWriter) discard() {
	if w != nil {
		_ = w.tmp.Close()
		_ = os.Remove(w.tmp.Name())
	}
}
