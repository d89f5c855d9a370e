package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/lastword/lastword/identity"
)

const caInitLong = `Makes a certificate authority for development in DIR, which must be empty or not there
yet: ca.crt and ca.key, good for 30 days, and authority.crt and authority.key for
'lastword serve', good for a day, for localhost and every --host. Every file has mode
0600, DIR has 0700.

Whoever reads ca.key can be anybody: this is for development. In production take the
certificates of your platform's SPIFFE authority, such as SPIRE.`

const caIssueLong = `Makes a certificate for SPIFFE-ID, of the trust domain of the authority in DIR, and its
key: DIR/NAME.crt and DIR/NAME.key, with NAME the id's path, its slashes as dashes. It is
for callers; with --server for an authority, and good for localhost as a name, too, and
for every --host. Only tools that look at names, such as curl, want these: lastword
looks at the SPIFFE id. Nothing is overwritten without --force, and with it only what is
of the same id and kind.`

func (a *app) caCommand() *cobra.Command {
	return group("ca", "certificates for development", a.caInitCommand(), a.caIssueCommand())
}

// certificate is what was issued, as JSON.
type certificate struct {
	ID       string `json:"id"`
	Cert     string `json:"cert"`
	Key      string `json:"key"`
	NotAfter string `json:"not_after"`
}

func certificateOf(i identity.Issued) certificate {
	return certificate{i.ID, i.CertFile, i.KeyFile, i.NotAfter.UTC().Format(time.RFC3339)}
}

func (a *app) caInitCommand() *cobra.Command {
	domain := identity.DefaultDomain
	var hosts []string
	cmd := &cobra.Command{
		Use: "init DIR", Short: "make a certificate authority", Long: caInitLong, Args: want("DIR"),
		Example: "  lastword ca init pki\n  lastword ca issue pki spiffe://" + identity.DefaultDomain + "/ann",
	}
	cmd.Flags().Var(&domainFlag{&domain}, "trust-domain", "of all that it issues")
	cmd.Flags().Var(&hostFlag{&hosts}, "host", "more names of the authority, repeatable")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		ca, authority, err := identity.InitCA(args[0], domain, hosts...)
		if err != nil {
			return err
		}
		return told(a.answer(struct {
			TrustDomain string      `json:"trust_domain"`
			CA          certificate `json:"ca"`
			Authority   certificate `json:"authority"`
		}{domain, certificateOf(ca), certificateOf(authority)},
			row{"trust domain", domain}, row{"ca", ca.CertFile + ", until " + certificateOf(ca).NotAfter},
			row{"authority", authority.ID + ", until " + certificateOf(authority).NotAfter},
			row{"serve with", "--tls-cert " + quoted(authority.CertFile) + " --tls-key " + quoted(authority.KeyFile) + " --tls-client-ca " + quoted(ca.CertFile)},
		), "ca init: made in %s", args[0])
	}
	return cmd
}

func (a *app) caIssueCommand() *cobra.Command {
	var cfg identity.IssueConfig
	cmd := &cobra.Command{
		Use: "issue DIR SPIFFE-ID", Short: "make a certificate", Long: caIssueLong, Args: want("DIR", "SPIFFE-ID"),
		Example: "  lastword ca issue pki spiffe://" + identity.DefaultDomain + "/ann",
	}
	f := cmd.Flags()
	f.BoolVar(&cfg.Server, "server", false, "for an authority, not for a caller")
	f.Var(&hostFlag{&cfg.Hosts}, "host", "with --server, one more name that it is good for, repeatable")
	f.Var(&durationFlag{value: &cfg.Life, least: time.Minute, most: identity.CALife}, "life", "how long it is good (default: a day)")
	f.Lookup("life").DefValue = ""
	f.BoolVar(&cfg.Force, "force", false, "replace an earlier one")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(cfg.Hosts) > 0 && !cfg.Server {
			return usage(cmd, "--host is of a certificate for --server")
		}
		out, err := identity.Issue(args[0], args[1], cfg)
		if err != nil {
			return err
		}
		return told(a.answer(certificateOf(out), row{"id", out.ID}, row{"certificate", out.CertFile}, row{"key", out.KeyFile},
			row{"until", certificateOf(out).NotAfter}), "ca issue: made %s and %s", out.CertFile, out.KeyFile)
	}
	return cmd
}
