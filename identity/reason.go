package identity

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Reason is the class of what is wrong with a certificate (T2). The set is closed.
type Reason string

// The reasons, in the order in which they are looked for.
const (
	// NoCertificate: the other side showed none.
	NoCertificate Reason = "NO_CERTIFICATE"
	// TooLarge: more certificates or bytes than a chain may have.
	TooLarge Reason = "TOO_LARGE"
	// NoID: it has no URI name.
	NoID Reason = "NO_ID"
	// SeveralIDs: it has more than one URI name.
	SeveralIDs Reason = "SEVERAL_IDS"
	// BadID: its URI name is no SPIFFE id of a workload: a wildcard, an empty or dot
	// segment, another scheme, no path, or too long.
	BadID Reason = "BAD_ID"
	// OtherDomain: the trust domain is not one that is trusted here.
	OtherDomain Reason = "OTHER_TRUST_DOMAIN"
	// IsAuthority: it is the certificate of an authority, which may only sign others.
	IsAuthority Reason = "IS_AUTHORITY"
	// KeyUsage: its key may not be used to sign, or to sign more than handshakes.
	KeyUsage Reason = "KEY_USAGE"
	// OtherPurpose: it is for servers and was used by a client, or the reverse.
	OtherPurpose Reason = "OTHER_PURPOSE"
	// NotYetValid: its time has not come.
	NotYetValid Reason = "NOT_YET_VALID"
	// Expired: its time is over.
	Expired Reason = "EXPIRED"
	// Untrusted: no authority of its trust domain has issued it.
	Untrusted Reason = "UNTRUSTED"
	// OtherPeer: it is good, and of another workload than the pinned one (T4).
	OtherPeer Reason = "OTHER_PEER"
)

var reasonTexts = map[Reason]string{
	NoCertificate: "no certificate was shown",
	TooLarge:      "the chain of certificates is too large",
	NoID:          "the certificate has no URI name, which would be its SPIFFE id",
	SeveralIDs:    "the certificate has more than one URI name",
	BadID:         "the certificate's URI name is no SPIFFE id of a workload",
	OtherDomain:   "the certificate's trust domain is not trusted here",
	IsAuthority:   "it is the certificate of an authority, not of a workload",
	KeyUsage:      "the certificate's key usage is not that of a workload",
	OtherPurpose:  "the certificate is not for this use",
	NotYetValid:   "the certificate is not yet valid",
	Expired:       "the certificate has expired",
	Untrusted:     "no authority of its trust domain has issued the certificate",
	OtherPeer:     "the certificate is another workload's than the expected one",
}

// Refusal is why a certificate was not accepted. It holds nothing but what the
// certificate says in public.
type Refusal struct {
	Reason Reason
	ID     string // of the certificate, clipped; "" if it has none
	Err    error  // the cause, if there is one
}

// Error is one line.
func (r *Refusal) Error() string {
	s := string(r.Reason) + ": " + reasonTexts[r.Reason]
	if r.ID != "" {
		s += fmt.Sprintf(": %q", r.ID)
	}
	if r.Err != nil {
		s += ": " + r.Err.Error()
	}
	return s
}

// Unwrap is the cause.
func (r *Refusal) Unwrap() error { return r.Err }

// ReasonOf is the reason of a refusal that err is or wraps, "" if there is none.
func ReasonOf(err error) Reason {
	var r *Refusal
	if errors.As(err, &r) {
		return r.Reason
	}
	return ""
}

// quiet logs refusals, one a second at most: whoever is refused may come again at once.
type quiet struct {
	mu      sync.Mutex
	at      time.Time
	skipped int
}

func (q *quiet) log(cfg Config, err error) {
	q.mu.Lock()
	now := cfg.Now()
	if since := now.Sub(q.at); since >= 0 && since < time.Second {
		q.skipped++
		q.mu.Unlock()
		return
	}
	skipped := q.skipped
	q.at, q.skipped = now, 0
	q.mu.Unlock()
	var r *Refusal
	if !errors.As(err, &r) {
		r = &Refusal{Err: err}
	}
	cfg.Logger.LogAttrs(context.Background(), slog.LevelWarn, "a client's certificate was refused",
		slog.String("reason", string(r.Reason)), slog.String("id", r.ID), slog.Int("not_logged", skipped))
}
