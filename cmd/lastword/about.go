package main

import (
	"bytes"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/internal/grantfile"
)

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "version of this program", Args: want(),
		RunE: func(*cobra.Command, []string) error {
			v := struct {
				Version string `json:"version"`
				Go      string `json:"go"`
				System  string `json:"system"`
			}{buildVersion(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			if a.json {
				return a.object(v)
			}
			_, err := fmt.Fprintf(a.stdout, "lastword %s (%s, %s)\n", v.Version, v.Go, v.System)
			return err
		},
	}
}

// buildVersion is what the build said, or what Go knows of it.
func buildVersion() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "unknown"
	}
	return info.Main.Version
}

func (a *app) completionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "completion bash|zsh|fish", Short: "completion script for a shell", Args: want("SHELL (bash, zsh or fish)"),
		ValidArgs: []string{"bash", "zsh", "fish"},
		Long: `Prints a completion script.

  bash   source <(lastword completion bash)
  zsh    lastword completion zsh > "${fpath[1]}/_lastword"
  fish   lastword completion fish | source`,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var script bytes.Buffer
		var err error
		switch root := cmd.Root(); args[0] {
		case "bash":
			err = root.GenBashCompletionV2(&script, true)
		case "zsh":
			err = root.GenZshCompletion(&script)
		case "fish":
			err = root.GenFishCompletion(&script, true)
		default:
			return usage(cmd, "unknown shell %q: want bash, zsh or fish", clip(args[0]))
		}
		if err != nil {
			return err
		}
		if a.json {
			return a.object(struct {
				Shell  string `json:"shell"`
				Script string `json:"script"`
			}{args[0], script.String()})
		}
		_, err = a.stdout.Write(script.Bytes())
		return err
	}
	return cmd
}

func (a *app) grantCommand() *cobra.Command {
	show := &cobra.Command{
		Use: "show FILE|-", Short: "what a grant says, NOT VERIFIED", Args: want("FILE"),
		Long: `Prints what a grant says of itself, NOT VERIFIED: a grant file of acquire, or the grant alone, from
FILE or, with -, from stdin. The signature is neither checked nor printed. Anybody can
write such a text: decide nothing by it.`,
		RunE: func(_ *cobra.Command, args []string) error { return a.showGrant(args[0]) },
	}
	return group("grant", "look at grants", show)
}

func (a *app) showGrant(path string) error {
	g, err := a.anyGrant(path)
	if err != nil {
		return badFile("grant show", path, err.Error(), "")
	}
	c := g.Claims
	return a.answer(struct {
		Verified         bool   `json:"verified"`
		Domain           string `json:"domain"`
		Resource         string `json:"resource"`
		Owner            string `json:"owner"`
		RequestID        string `json:"request_id"`
		LeaseID          string `json:"lease_id"`
		Fence            uint64 `json:"fence,string"`
		Epoch            uint32 `json:"epoch"`
		Revision         uint64 `json:"revision,string"`
		PolicyGeneration uint64 `json:"policy_generation,string"`
		Root             string `json:"root"`
		Class            string `json:"class"`
		TTL              string `json:"ttl"`
		IssuedAt         string `json:"issued_at"`
		KeyID            string `json:"key_id"`
		Algorithm        string `json:"algorithm"`
		GrantDigest      string `json:"grant_digest"`
	}{
		false, c.Domain, string(c.Resource), c.Owner, c.RequestID, c.LeaseID, uint64(c.Fence), c.Epoch(),
		c.Revision, c.PolicyGeneration, c.Root.String(), string(c.Class), seconds(c.TTL), c.IssuedAt.UTC().Format(time.RFC3339),
		g.KeyID, g.Algorithm, g.Digest.String(),
	},
		row{"NOT VERIFIED", "nobody has checked the signature; decide nothing by this"},
		row{"domain", c.Domain}, row{"resource", string(c.Resource)}, row{"fence", fenceText(c.Fence)}, row{"owner", c.Owner},
		row{"request id", c.RequestID}, row{"lease id", c.LeaseID}, row{"root", c.Root.String()}, row{"class", string(c.Class)},
		row{"ttl", spanText(c.TTL)}, row{"issued at", c.IssuedAt.UTC().Format(time.RFC3339)}, row{"key id", g.KeyID},
		row{"digest", g.Digest.String()},
	)
}

// seconds is a duration as protobuf's JSON spells it.
func seconds(d time.Duration) string {
	s := fmt.Sprintf("%d", d/time.Second)
	if rest := d % time.Second; rest != 0 {
		s += strings.TrimRight(fmt.Sprintf(".%09d", rest), "0")
	}
	return s + "s"
}

// anyGrant reads a grant file, or a grant alone.
func (a *app) anyGrant(path string) (grant.Unverified, error) {
	read := func() ([]byte, error) { return readSmall(path, grantfile.MaxBytes) }
	if path == "-" {
		read = func() ([]byte, error) { return limited(a.stdin, grantfile.MaxBytes) }
	}
	b, err := read()
	if err != nil {
		return grant.Unverified{}, err
	}
	text := bytes.TrimSpace(b)
	if len(text) == 0 || text[0] == '{' {
		f, err := grantfile.Parse(b)
		return f.Claims(), err
	}
	g, err := grant.Inspect(string(text))
	if err != nil {
		return g, fmt.Errorf("it is neither a grant file nor a grant: %s", reason(err))
	}
	return g, nil
}
