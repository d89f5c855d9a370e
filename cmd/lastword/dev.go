package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/server"
)

const devLong = `Runs an authority for trying things out, with no configuration: the domain is dev, the
state is a SQLite file in --dir, and a second start finds it again. gRPC and HTTP listen
on loopback, at the ports that every other command expects.

Beside it lies app.db, the sample of a guarded database: a table 'document' with the
tables of the fence (fence init). It prints three commands that work in another
terminal as they are printed. Ctrl-C ends it with exit code 0.

It is for development: anybody on this machine can act as any owner, and key and
witness lie beside the store. Where it counts, use 'lastword serve'. To begin again,
stop it and remove the directory.`

const (
	devDomain   = "dev"
	devResource = "doc/a"
)

func (a *app) devCommand() *cobra.Command {
	var cfg server.Config
	dir := ""
	cmd := &cobra.Command{Use: "dev", Short: "an authority to try things out, without configuration", Long: devLong, Args: want(), Example: "  lastword dev"}
	f := cmd.Flags()
	f.StringVar(&dir, "dir", "lastword-dev", "`DIRECTORY` that keeps the state; made if it is not there")
	doors := listenFlags(f, &cfg)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := a.fromEnvironment(cmd, cmd.LocalNonPersistentFlags()); err != nil {
			return err
		}
		if err := doors.resolve(cmd); err != nil {
			return err
		}
		return a.dev(cmd.Context(), cfg, dir)
	}
	return cmd
}

func (a *app) dev(ctx context.Context, cfg server.Config, dir string) error {
	d, err := makeDevDirectory(dir)
	if err != nil {
		return err
	}
	cfg.Domain, cfg.Store = devDomain, "sqlite:"+filepath.Join(d.path, "authority.db")
	cfg.Logger = slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	s, err := d.open(ctx, cfg)
	if err != nil {
		d.unmake()
		return named(err, "dev", "")
	}
	if err := d.furnish(ctx); err != nil {
		return errors.Join(named(err, "dev", ""), s.Close())
	}
	if err := a.devReady(s, d.path, d.sample(), d.again); err != nil {
		_ = s.Close() // what counts is that nobody could be told
		return err
	}
	return s.Serve(ctx)
}

// devDir is the directory of a dev authority.
type devDir struct {
	path  string   // absolute
	again bool     // there was a state in it
	made  []string // the directories that this start has made, the outermost first
}

// makeDevDirectory makes the directory, for this user alone: a signing key will lie in
// it.
func makeDevDirectory(path string) (d devDir, err error) {
	if path == "" {
		return d, devDirectory(path, errors.New("it has no name"))
	}
	if d.path, err = filepath.Abs(path); err != nil {
		return d, devDirectory(path, err)
	}
	for missing := d.path; ; missing = filepath.Dir(missing) {
		if _, err := os.Lstat(missing); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		d.made = append([]string{missing}, d.made...)
	}
	err = os.MkdirAll(d.path, 0o700)
	if err == nil {
		_, err = os.Stat(filepath.Join(d.path, "authority.db"))
		d.again = err == nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.unmake()
		return d, devDirectory(path, err)
	}
	return d, nil
}

// unmake removes what a start made that has failed, if nothing is in it.
func (d *devDir) unmake() {
	for i := len(d.made) - 1; i >= 0; i-- {
		if os.Remove(d.made[i]) != nil {
			return
		}
	}
}

func (d *devDir) sample() string { return filepath.Join(d.path, "app.db") }

// open opens the server. A sample that is there is looked at first, so that one that is
// none leaves no store behind.
func (d *devDir) open(ctx context.Context, cfg server.Config) (*server.Server, error) {
	if _, err := os.Lstat(d.sample()); err == nil {
		if err := makeSample(ctx, d.sample()); err != nil {
			return nil, err
		}
	}
	return server.Open(ctx, cfg)
}

// furnish makes what lies beside the state.
func (d *devDir) furnish(ctx context.Context) error {
	if !d.again { // nobody wants to see the key in a repository
		ignore, err := os.OpenFile(filepath.Join(d.path, ".gitignore"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = ignore.WriteString("*\n")
			err = errors.Join(err, ignore.Close())
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return devDirectory(d.path, err)
		}
	}
	return makeSample(ctx, d.sample())
}

func devDirectory(path string, err error) error {
	return &lastword.Error{Code: lastword.CodeInvalid, Op: "dev", Message: fmt.Sprintf("directory %s: %s", quoted(path), pathless(err)), Hint: "name another one with --dir"}
}

// makeSample makes the guarded database, and leaves one that is there as it is.
func makeSample(ctx context.Context, path string) error {
	const patience = 30 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err := makeTables(ctx, "dev", path); err != nil {
		return err
	}
	g, err := openDatabase(path, true, true)
	if err != nil {
		return err
	}
	defer g.close()
	if err := fillSample(ctx, g.db); err != nil {
		return badDatabase("dev", path, err.Error(), "name another directory with --dir")
	}
	return nil
}

func fillSample(ctx context.Context, db *sql.DB) error {
	for _, text := range []string{
		"CREATE TABLE IF NOT EXISTS document (id TEXT PRIMARY KEY, body TEXT NOT NULL)",
		"INSERT INTO document VALUES ('doc/a', 'written by nobody yet'), ('doc/b', 'written by nobody yet') ON CONFLICT DO NOTHING",
	} {
		if _, err := db.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

// devCommands are what to try, for a shell. They may be pasted again: the first one then
// waits until the lease that it took before is over.
func devCommands(s *server.Server, dir, sample string) []string {
	at, grant := "", quoted(filepath.Join(dir, "a.grant"))
	if addr := s.Addr().String(); addr != server.DefaultGRPC {
		at = " --authority " + addr
	}
	write := fmt.Sprintf(`"UPDATE document SET body = 'mine' WHERE id = '%s'"`, devResource)
	commands := []string{
		fmt.Sprintf("%s acquire %s --ttl 30s --wait 1m --grant %s --force%s", callable(), devResource, grant, at),
		fmt.Sprintf("%s fence apply %s %s --grant %s --op edit-1 --sql %s%s",
			callable(), quoted("sqlite:"+sample), devResource, grant, write, at),
	}
	if web := httpAddress(s); web != "" {
		commands = append(commands, fmt.Sprintf("curl 'http://%s/v1/status?resource=%s'", web, devResource))
	}
	return commands
}

// callable is how this program can be called from any directory.
func callable() string {
	called := os.Args[0]
	if filepath.Base(called) != called { // it was named by a path, maybe a relative one
		if full, err := filepath.Abs(called); err == nil {
			called = full
		}
	}
	return quoted(called)
}

// devJSON is the ready line of dev as JSON.
type devJSON struct {
	readiness
	Directory string   `json:"directory"`
	Sample    string   `json:"sample"`
	Again     bool     `json:"again"`
	Commands  []string `json:"commands"`
}

func (a *app) devReady(s *server.Server, dir, sample string, again bool) error {
	epoch, err := s.Authority().Epoch()
	if err != nil {
		return err
	}
	files, addr, web, page := s.Files(), s.Addr().String(), httpAddress(s), ""
	if web != "" {
		page = "http://" + web + "/"
	}
	state := dir + ", new"
	if again {
		state = dir + ", as the last start left it"
	}
	commands := devCommands(s, dir, sample)
	if err := a.answer(devJSON{
		readiness{true, addr, web, devDomain, epoch, files.Store, files.Key, files.Witness}, dir, sample, again, commands,
	}, row{"lastword dev", "for development only: no identities, loopback only"},
		row{"http", page}, row{"grpc", addr}, row{"domain", devDomain}, row{"epoch", fmt.Sprint(epoch)},
		row{"state", state}, row{"sample", sample + ", table document, guarded as " + devResource},
	); err != nil || a.json {
		return err
	}
	text := "\ntry, in another terminal\n"
	for _, c := range commands {
		text += "  " + c + "\n"
	}
	_, err = fmt.Fprintf(a.stdout, "%s\nCtrl-C ends it.\nready %s\n", text, addr)
	return err
}
