package httpapi

import (
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/identity"
)

// Config bounds a [Server]. The zero value works; 0 in a field is its default. No
// value may be negative.
type Config struct {
	// MaxConnections bounds the open connections; one above it is answered with 503
	// and closed. Default 16,384.
	MaxConnections int
	// MaxWaiting bounds the calls that may stay open: acquires with a wait, and
	// watches. One above it is refused with QUOTA. It leaves connections for those
	// who renew: the default is three quarters of MaxConnections.
	MaxWaiting int
	// RequestTimeout is how long the headers of a request may take, and again how
	// long its body may take, also one that nobody reads. Default 10 s.
	RequestTimeout time.Duration
	// WriteTimeout is how long one write may take until its reader is given up.
	// Default 30 s.
	WriteTimeout time.Duration
	// MaxIdle is how long a connection without a request is kept. Default 2 min.
	MaxIdle time.Duration

	// Identity secures the listener with TLS, and lets it be on other addresses than
	// loopback: the service is told the certificate of a caller, which has to be good,
	// and is to know its callers by the same source
	// ([github.com/lastword/lastword/rpc.ServerConfig.Identity]). Who shows none
	// reaches what asks for no caller: pages, and calls as far as the service has
	// such. Nil: plain text.
	Identity *identity.Source
	// MaxAge is how long a connection with Identity is kept for further requests.
	// Default 10 min.
	MaxAge time.Duration
	// Hosts are names, beside localhost and loopback addresses, that a Host header
	// may have. With Identity it may have any: a name that is not the certificate's
	// is for the caller to refuse.
	Hosts []string
	// Pages are answered beside the calls, to GET and HEAD only, behind the same
	// check of Host. Their requests carry what tells who calls, as calls do. The keys are patterns of [http.ServeMux] without a method.
	Pages map[string]http.Handler
	// Now is the wall clock, for time limits. Nil: time.Now.
	Now func() time.Time
	// Logger gets what goes wrong in HTTP itself. Nil: slog.Default().
	Logger *slog.Logger
}

func (c *Config) validate() error {
	for _, f := range []struct {
		name  string
		value *time.Duration
		want  time.Duration
	}{
		{"RequestTimeout", &c.RequestTimeout, 10 * time.Second},
		{"WriteTimeout", &c.WriteTimeout, 30 * time.Second},
		{"MaxIdle", &c.MaxIdle, 2 * time.Minute},
		{"MaxAge", &c.MaxAge, 10 * time.Minute},
	} {
		if *f.value < 0 {
			return invalid("http configuration: %s is %s, less than 0", f.name, *f.value)
		}
		if *f.value == 0 {
			*f.value = f.want
		}
	}
	if c.MaxConnections < 0 || c.MaxWaiting < 0 {
		return invalid("http configuration: a bound is less than 0")
	}
	if c.MaxConnections == 0 {
		c.MaxConnections = 16 << 10
	}
	if c.MaxWaiting == 0 {
		c.MaxWaiting = max(1, c.MaxConnections*3/4)
	}
	if c.Now == nil {
		c.Now = time.Now //nolint:forbidigo // the one place where the default is taken
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return nil
}

func invalid(format string, args ...any) *lastword.Error {
	return &lastword.Error{Code: lastword.CodeInvalid, Message: fmt.Sprintf(format, args...)}
}
