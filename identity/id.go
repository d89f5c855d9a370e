package identity

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/lastword/lastword"
)

// CheckID reports whether s is the SPIFFE id of a workload: well-formed, with a path,
// and at most [lastword.MaxIDBytes] long, so that it can be an owner. The error has
// [lastword.CodeInvalid].
func CheckID(s string) error {
	_, err := parseID(s)
	return err
}

// DomainOf is the trust domain of a SPIFFE id. The error is that of [CheckID].
func DomainOf(id string) (string, error) {
	parsed, err := parseID(id)
	if err != nil {
		return "", err
	}
	return parsed.TrustDomain().Name(), nil
}

func parseID(s string) (spiffeid.ID, error) {
	id, err := spiffeid.FromString(s)
	switch {
	case err != nil:
	case id.Path() == "":
		err = errors.New("it names a trust domain and no workload: it has no path")
	case len(s) > lastword.MaxIDBytes:
		err = fmt.Errorf("it has %d bytes, more than %d", len(s), lastword.MaxIDBytes)
	default:
		return id, nil
	}
	bad := invalid("SPIFFE id %q: %v", clip(s), err)
	bad.Hint = "such as spiffe://example.org/worker"
	return spiffeid.ID{}, bad
}

// CheckDomain reports whether s is the name of a trust domain, such as example.org. The
// error has [lastword.CodeInvalid].
func CheckDomain(s string) error {
	td, err := spiffeid.TrustDomainFromString(s)
	if err != nil {
		return invalid("trust domain %q: %v", clip(s), err)
	}
	if td.Name() != s {
		return invalid("trust domain %q: want its name alone, %q", clip(s), td.Name())
	}
	if len(s) > 255 {
		return invalid("trust domain %q: it has more than 255 bytes", clip(s))
	}
	return nil
}

func invalid(format string, args ...any) *lastword.Error {
	return &lastword.Error{Code: lastword.CodeInvalid, Message: fmt.Sprintf(format, args...)}
}

// clip shortens what others have written.
func clip(s string) string {
	const shown = 128
	if len(s) > shown {
		return strings.ToValidUTF8(s[:shown], "") + "…"
	}
	return s
}
