package main

import (
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/server"
)

const serveLong = `Runs the authority of one domain on an embedded SQLite file until SIGINT, SIGTERM
or SIGHUP; it then answers the calls under way and ends with exit code 0. A signal that comes a
second later or more ends it at once.

Without --tls-cert an owner is what a caller says, and serve listens on loopback only.
With --tls-cert, --tls-key and --tls-client-ca it speaks TLS 1.3 and wants a certificate
of each caller: its SPIFFE id is the owner. 'lastword ca init' makes all three files for
development. A caller is of the trust domain of --trust-domain, which is that of
the own certificate if it is left out; '--tls-client-ca DOMAIN=FILE' trusts another
domain, too. --dev-tokens FILE is for development on loopback: a YAML mapping of names to
tokens. --policy FILE says what callers may do; what it does not name is refused.
Certificates and policy are read again when their files change, and so is the key ring;
every other setting counts from the next start.

Two doors: gRPC at --grpc, and the same calls as JSON over HTTP at --listen, with
/healthz, /readyz, /openapi.json, the trust bundle and a status page.

Every flag can also be given as an environment variable: --grpc is LASTWORD_GRPC,
--on-regression is LASTWORD_ON_REGRESSION, and so on; LASTWORD_LOCK_DELAY and
LASTWORD_TLS_CLIENT_CA take several values, divided by commas. And every flag can stand
in the YAML file of --config, by the same name: 'grpc: 127.0.0.1:7420'; lock-delay and
tls-client-ca are a list or a mapping there. A flag wins over its variable, a variable
over the file, the file over the default.

Logs go to stderr. On stdout, the line 'ready ADDRESS' says that calls are answered at
the gRPC address; with -o json it is one object with ready, grpc, http, domain, epoch
and the files.

The key file is made at the first start. The witness remembers which epoch the store
had: a store that was put back from a copy is refused (exit code 124) until an operator
has looked and confirms it with 'lastword epoch advance', or starts once with
--on-regression=advance. Keep it on another volume than the store: beside it, it is put
back together with it, and serve warns. A store that was served with --witness is never
served without that witness again; 'lastword witness init' moves it.`

func (a *app) serveCommand() *cobra.Command {
	cfg := server.Config{GRPC: server.DefaultGRPC, OnRegression: "stop"}
	delays := &delayFlag{value: &cfg.LockDelay}
	cmd := &cobra.Command{
		Use: "serve --store sqlite:PATH --domain NAME", Short: "run an authority", Long: serveLong, Args: want(),
		Example: "  lastword serve --store sqlite:lastword.db --domain demo",
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Store, "store", "", "where the state is kept: sqlite:`PATH` (required)")
	f.Var(&idFlag{"domain", &cfg.Domain}, "domain", "the set of resources it issues fences for (required)")
	f.String("config", "", "YAML `FILE` with flags by their names; or LASTWORD_CONFIG")
	doors := listenFlags(f, &cfg)
	securityFlags(f, &cfg)
	f.StringVar(&cfg.KeyFile, "key", "", "signing key `FILE` (default: the store's path with .key)")
	f.BoolVar(&cfg.NewKey, "new-key", false, "make a key although the store has been used with another one, which is lost")
	f.StringVar(&cfg.Witness, "witness", "", "file:`PATH` or sqlite:PATH (default: the store's path with .witness)")
	f.StringVar(&cfg.Audit, "audit", "", "audit log `FILE`: what operators do (default: the store's path with .audit)")
	f.Var(&choiceFlag{&cfg.OnRegression, []string{"stop", "advance"}}, "on-regression", "what to do when the store went back: stop or advance")
	f.Var(delays, "lock-delay", "PREFIX=DURATION: time between an expiry and the next grant (repeatable)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := a.configure(cmd); err != nil {
			return err
		}
		for _, need := range []struct{ value, what string }{{cfg.Store, "--store sqlite:PATH"}, {cfg.Domain, "--domain NAME"}} {
			if need.value == "" {
				return usage(cmd, "no %s given", need.what)
			}
		}
		if err := doors.resolve(cmd); err != nil {
			return err
		}
		cfg.Logger = slog.New(slog.NewTextHandler(a.stderr, nil))
		s, err := server.Open(cmd.Context(), cfg)
		if err != nil {
			return err
		}
		if f := s.Files(); filepath.Dir(f.Witness) == filepath.Dir(f.Store) {
			cfg.Logger.Warn("the witness lies beside the store and notices only a store that is put back alone; name another volume with --witness",
				"witness", f.Witness)
		}
		if err := a.ready(s, cfg.Domain, cfg.DevTokens != ""); err != nil {
			_ = s.Close() // what counts is that nobody could be told
			return err
		}
		defer spare()()
		return s.Serve(cmd.Context())
	}
	return cmd
}

// securityFlags say who callers are, and what they may do.
func securityFlags(f *pflag.FlagSet, cfg *server.Config) {
	f.StringVar(&cfg.TLS.Cert, "tls-cert", "", "PEM `FILE` with the server's certificate")
	f.StringVar(&cfg.TLS.Key, "tls-key", "", "PEM `FILE` with its key")
	f.Var(&caFlag{&cfg.TLS.ClientCA}, "tls-client-ca", "PEM file with the certificates that issue those of callers (repeatable)")
	f.Var(&domainFlag{&cfg.TLS.TrustDomain}, "trust-domain", "of the server's own certificate, and of --tls-client-ca FILE (default: what the certificate says)")
	f.StringVar(&cfg.DevTokens, "dev-tokens", "", "YAML `FILE` with development tokens by caller, on loopback only")
	f.StringVar(&cfg.Policy, "policy", "", "YAML `FILE` that says what callers may do (default: everything, each in its own name)")
}

// doorFlags are the addresses of the two listeners.
type doorFlags struct {
	cfg    *server.Config
	listen string
}

func listenFlags(f *pflag.FlagSet, cfg *server.Config) *doorFlags {
	d := &doorFlags{cfg: cfg}
	f.StringVar(&cfg.GRPC, "grpc", server.DefaultGRPC, "listen `ADDR` of gRPC; port 0 takes a free one")
	f.StringVar(&d.listen, "listen", "", "listen `ADDR` of HTTP, or none (default: the port after that of --grpc, "+server.DefaultHTTP+")")
	return d
}

// resolve finds the address of HTTP. Without one it is beside that of gRPC, so that a
// second server on this machine needs one flag.
func (d *doorFlags) resolve(cmd *cobra.Command) error {
	if d.listen != "" {
		if d.cfg.HTTP = d.listen; d.listen == "none" {
			d.cfg.HTTP = ""
		}
		return nil
	}
	host, port, bad := net.SplitHostPort(d.cfg.GRPC)
	n, badPort := strconv.ParseUint(port, 10, 16)
	switch {
	case bad != nil || badPort != nil:
		return nil //nolint:nilerr // the server says what is wrong with it
	case n == math.MaxUint16:
		return usage(cmd, "no --listen ADDR given, and there is no port after that of --grpc")
	case n > 0:
		n++
	}
	d.cfg.HTTP = net.JoinHostPort(host, strconv.FormatUint(n, 10))
	return nil
}

// readiness is the ready line of serve as JSON.
type readiness struct {
	Ready   bool   `json:"ready"`
	GRPC    string `json:"grpc"`
	HTTP    string `json:"http"`
	Domain  string `json:"domain"`
	Epoch   uint32 `json:"epoch"`
	Store   string `json:"store"`
	Key     string `json:"key"`
	Witness string `json:"witness"`
}

func (a *app) ready(s *server.Server, domain string, identified bool) error {
	epoch, err := s.Authority().Epoch()
	if err != nil {
		return err
	}
	files, addr := s.Files(), s.Addr().String()
	web, page := httpAddress(s), ""
	switch {
	case web != "" && s.Identity() != nil:
		page = "https://" + web + "/, TLS 1.3"
	case web != "":
		page = "http://" + web + "/, loopback only"
	}
	at := ""
	if addr != server.DefaultGRPC {
		at = " --authority " + addr
	}
	if err := a.answer(readiness{true, addr, web, domain, epoch, files.Store, files.Key, files.Witness},
		row{"domain", domain}, row{"epoch", fmt.Sprint(epoch)}, row{"grpc", addr + ", " + transport(s)}, row{"http", page},
		row{"store", files.Store}, row{"key", files.Key}, row{"witness", files.Witness},
	); err != nil || a.json {
		return err
	}
	if s.Identity() != nil || identified {
		_, err = fmt.Fprintf(a.stdout, "\nready %s\n", addr)
		return err
	}
	_, err = fmt.Fprintf(a.stdout, `
try
  %[3]s acquire demo/hello --ttl 5m --grant hello.grant --force%[1]s
  %[3]s status demo/hello%[1]s
  %[3]s release --grant hello.grant%[1]s

ready %[2]s
`, at, addr, invocation())
	return err
}

// transport says how the listeners are secured.
func transport(s *server.Server) string {
	if id := s.Identity(); id != nil {
		return "TLS 1.3, " + id.ID() + ", callers of " + strings.Join(id.Domains(), ", ")
	}
	return "plain text, loopback only"
}

// httpAddress is the address of HTTP, "" for none.
func httpAddress(s *server.Server) string {
	if s.HTTPAddr() == nil {
		return ""
	}
	return s.HTTPAddr().String()
}

// invocation is how this program was called, so that what it prints can be pasted.
func invocation() string {
	if called := os.Args[0]; filepath.Base(called) == "lastword" {
		return quoted(called)
	}
	return "lastword"
}

// delayFlag is --lock-delay.
type delayFlag struct{ value *map[string]time.Duration }

func (f *delayFlag) String() string {
	if f.value == nil {
		return ""
	}
	var all []string
	for _, prefix := range slices.Sorted(maps.Keys(*f.value)) {
		all = append(all, prefix+"="+(*f.value)[prefix].String())
	}
	return strings.Join(all, ",")
}
func (f *delayFlag) Type() string { return "DELAY" }
func (f *delayFlag) Set(s string) error {
	at := strings.LastIndexByte(s, '=')
	if at < 0 {
		return fmt.Errorf("%q: want PREFIX=DURATION, such as jobs/=5s", clip(s))
	}
	prefix := s[:at]
	if err := lastword.CheckID("prefix", prefix); err != nil {
		return err
	}
	delay := time.Duration(0)
	if err := (&durationFlag{value: &delay, most: 24 * time.Hour}).Set(s[at+1:]); err != nil {
		return err
	}
	if _, twice := (*f.value)[prefix]; twice {
		return fmt.Errorf("the prefix %q is there twice", clip(prefix))
	}
	if *f.value == nil {
		*f.value = map[string]time.Duration{}
	}
	(*f.value)[prefix] = delay
	return nil
}
