package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/identity"
	"github.com/lastword/lastword/rpc"
)

// The values of flags. Each refuses what its parser refuses, before anything is done.

// outputFlag is -o.
type outputFlag struct{ json *bool }

func (f *outputFlag) String() string {
	if f.json != nil && *f.json {
		return "json"
	}
	return "text"
}
func (f *outputFlag) Type() string { return "FORMAT" }
func (f *outputFlag) Set(s string) error {
	if s != "text" && s != "json" {
		return fmt.Errorf("%q: want text or json", clip(s))
	}
	*f.json = s == "json"
	return nil
}

// durationFlag is a duration within bounds (KF-20).
type durationFlag struct {
	value       *time.Duration
	least, most time.Duration
}

func (f *durationFlag) String() string {
	if f.value == nil {
		return ""
	}
	return f.value.String()
}
func (f *durationFlag) Type() string { return "DURATION" }
func (f *durationFlag) Set(s string) error {
	d, err := lastword.ParseDuration(s)
	if err != nil {
		return err
	}
	if d < f.least || d > f.most {
		return fmt.Errorf("%s: want %s to %s", clip(s), f.least, f.most)
	}
	*f.value = d
	return nil
}

// idFlag is an owner, request id, lease id, class, domain or operation id.
type idFlag struct {
	what  string
	value *string
}

func (f *idFlag) String() string {
	if f.value == nil {
		return ""
	}
	return *f.value
}
func (f *idFlag) Type() string { return "ID" }
func (f *idFlag) Set(s string) error {
	if err := lastword.CheckID(f.what, s); err != nil {
		return err
	}
	*f.value = s
	return nil
}

// digestFlag is a digest.
type digestFlag struct{ value *lastword.Digest }

func (f *digestFlag) String() string {
	if f.value == nil {
		return ""
	}
	return f.value.String()
}
func (f *digestFlag) Type() string { return "DIGEST" }
func (f *digestFlag) Set(s string) (err error) {
	*f.value, err = lastword.ParseDigest(s)
	return err
}

// seqFlag is the number of a write: spelled as a fence is, 1 to 2^53 − 1.
type seqFlag struct{ value *uint64 }

func (f *seqFlag) String() string { return "" }
func (f *seqFlag) Type() string   { return "N" }
func (f *seqFlag) Set(s string) error {
	t, err := lastword.ParseToken(s)
	if err != nil {
		return fmt.Errorf("%q: want a decimal number from 1 to %d", clip(s), lastword.MaxToken)
	}
	*f.value = uint64(t)
	return nil
}

// choiceFlag is one of a few words.
type choiceFlag struct {
	value  *string
	choice []string
}

func (f *choiceFlag) String() string {
	if f.value == nil {
		return ""
	}
	return *f.value
}
func (f *choiceFlag) Type() string { return "WORD" }
func (f *choiceFlag) Set(s string) error {
	for _, c := range f.choice {
		if s == c {
			*f.value = s
			return nil
		}
	}
	return fmt.Errorf("%q: want one of %q", clip(s), f.choice)
}

// secured are the flags that say who this caller is and which authority it expects.
type secured struct{ cert, key, ca, authorityID, tokenFile string }

// setting is a flag of secured, which is also a variable.
type setting struct {
	flag  string
	value *string
}

// settings are all of them, those of TLS first.
func (s *secured) settings() []setting {
	return []setting{
		{"tls-cert", &s.cert}, {"tls-key", &s.key}, {"tls-ca", &s.ca}, {"authority-id", &s.authorityID},
		{"token-file", &s.tokenFile},
	}
}

func (s setting) variable() string {
	return "LASTWORD_" + strings.ToUpper(strings.ReplaceAll(s.flag, "-", "_"))
}

func (s *secured) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.cert, "tls-cert", "", "PEM `FILE` with your certificate; or LASTWORD_TLS_CERT")
	f.StringVar(&s.key, "tls-key", "", "PEM `FILE` with its key; or LASTWORD_TLS_KEY")
	f.StringVar(&s.ca, "tls-ca", "", "PEM `FILE` with the certificates that issue the authority's; or LASTWORD_TLS_CA")
	f.StringVar(&s.authorityID, "authority-id", "", "SPIFFE `ID` that the authority has to prove; or LASTWORD_AUTHORITY_ID")
	f.StringVar(&s.tokenFile, "token-file", "", "`FILE` with your development token; or LASTWORD_TOKEN_FILE")
}

// resolve takes in the environment and opens what is named. All four of TLS go
// together: an authority that is not pinned could be anybody (T4).
func (s *secured) resolve(a *app, cmd *cobra.Command, cfg *rpc.ClientConfig) error {
	for _, n := range s.settings() {
		if *n.value == "" {
			*n.value, _ = a.env(n.variable())
		}
	}
	tls := s.settings()[:4]
	var given, missing []string
	for _, n := range tls {
		if *n.value != "" {
			given = append(given, n.flag)
		} else {
			missing = append(missing, n.flag)
		}
	}
	switch {
	case s.tokenFile != "" && len(given) > 0:
		return usage(cmd, "--token-file and --%s: want a development token or certificates (flags and variables)", given[0])
	case s.tokenFile != "":
		var err error
		cfg.Token, err = identity.OpenToken(s.tokenFile)
		return err
	case len(given) == 0:
		return nil
	case len(missing) > 0:
		return usage(cmd, "no --%s given: --tls-cert, --tls-key, --tls-ca and --authority-id go together", missing[0])
	}
	return s.open(cmd, cfg)
}

func (s *secured) open(cmd *cobra.Command, cfg *rpc.ClientConfig) error {
	domain, err := identity.DomainOf(s.authorityID)
	if err != nil {
		return usage(cmd, "--authority-id: %s", reason(err))
	}
	cfg.Authority = s.authorityID
	cfg.Identity, err = identity.Open(identity.Config{CertFile: s.cert, KeyFile: s.key, CAFiles: map[string]string{domain: s.ca}})
	return err
}

// environment is what a child needs to be the same caller.
func (s *secured) environment() []string {
	var list []string
	for _, n := range s.settings() {
		list = append(list, n.variable()+"="+*n.value)
	}
	return list
}

// caFlag is --tls-client-ca.
type caFlag struct{ value *map[string]string }

func (f *caFlag) String() string { return "" }
func (f *caFlag) Type() string   { return "[DOMAIN=]FILE" }
func (f *caFlag) Set(s string) error {
	domain, file := "", s
	if head, tail, ok := strings.Cut(s, "="); ok && identity.CheckDomain(head) == nil {
		domain, file = head, tail
	}
	if file == "" {
		return errors.New("it names no file")
	}
	if _, twice := (*f.value)[domain]; twice {
		return fmt.Errorf("the trust domain %q is there twice", domain)
	}
	if *f.value == nil {
		*f.value = map[string]string{}
	}
	(*f.value)[domain] = file
	return nil
}

// domainFlag is the name of a trust domain.
type domainFlag struct{ value *string }

func (f *domainFlag) String() string {
	if f.value == nil {
		return ""
	}
	return *f.value
}
func (f *domainFlag) Type() string { return "DOMAIN" }
func (f *domainFlag) Set(s string) error {
	if err := identity.CheckDomain(s); err != nil {
		return err
	}
	*f.value = s
	return nil
}

// hostFlag is --host, as often as it is given.
type hostFlag struct{ value *[]string }

func (f *hostFlag) String() string { return "" }
func (f *hostFlag) Type() string   { return "NAME|IP" }
func (f *hostFlag) Set(s string) error {
	if err := identity.CheckHost(s); err != nil {
		return err
	}
	if len(*f.value) == identity.MaxHosts {
		return fmt.Errorf("more than %d hosts", identity.MaxHosts)
	}
	*f.value = append(*f.value, s)
	return nil
}
