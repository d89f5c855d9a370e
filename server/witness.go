package server

import (
	"context"
	"fmt"
	"strings"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
	"github.com/lastword/lastword/store"
	"github.com/lastword/lastword/store/sqlstore"
)

// witness is a witness with what it holds open.
type witness struct {
	authority.MovableWitness
	path  string
	close func() error
}

// defaultWitness is the file beside a store that is its witness if none is named.
func defaultWitness(store string) string { return store + ".witness" }

// openWitness reads "file:PATH" or "sqlite:PATH"; "" is the file beside the store. It
// changes no file.
func openWitness(url, store string) (witness, error) {
	if url == "" {
		url = "file:" + defaultWitness(store)
	}
	kind, path, ok := strings.Cut(url, ":")
	if !ok || path == "" || kind != "file" && kind != "sqlite" {
		return witness{}, &lastword.Error{
			Code: lastword.CodeInvalid, Message: "the witness: this server knows file:PATH and sqlite:PATH only", // what was given may have a password
			Hint: "for example file:/mnt/other-volume/lastword.witness",
		}
	}
	path, err := resolved(path)
	if err != nil {
		return witness{}, err
	}
	if kind == "file" {
		return witness{authority.NewFileWitness(path), path, func() error { return nil }}, nil
	}
	w, err := sqlstore.NewWitness(path, sqlstore.WitnessConfig{})
	if err != nil {
		return witness{}, err
	}
	return witness{w, path, w.Close}, nil
}

// mayAdopt refuses to begin a witness at a new place while the store has another one at
// the usual place: it knows what a new one does not.
func mayAdopt(ctx context.Context, files Files, url string, mark *authority.Mark, h store.Header) error {
	usual := defaultWitness(files.Store)
	if mark != nil || url == "" || files.Witness == usual {
		return nil
	}
	if !h.Exists || h.Witnessed {
		return nil // an empty store gets its first one; a marked one does not start
	}
	old, err := authority.NewFileWitness(usual).Load(ctx)
	if err != nil || old == nil {
		return err
	}
	return &lastword.Error{
		Code: lastword.CodeInvalid, Message: "the store has its witness at " + usual + ", and there is none at " + files.Witness,
		Hint: fmt.Sprintf("move it: lastword witness init --store sqlite:%s --witness %s --from file:%s", files.Store, url, usual),
	}
}
