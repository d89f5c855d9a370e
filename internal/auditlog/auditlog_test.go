package auditlog_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/auditlog"
)

func read(t *testing.T, path string) (all []auditlog.Line) {
	t.Helper()
	if err := auditlog.Read(path, func(l auditlog.Line) error { all = append(all, l); return nil }); err != nil {
		t.Fatal(err)
	}
	return all
}

func clock() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 6789, time.FixedZone("east", 3600)) }

func TestAnActionHasALineBeforeAndALineAfter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit")
	if got := read(t, path); got != nil {
		t.Fatalf("a missing file has %v", got)
	}
	l := auditlog.New(path, clock)
	ended, err := l.Begin(auditlog.Entry{
		Action: "revoke", Operator: "ann", Reason: "two\nlines", Resource: "doc/a", Fence: 1<<53 - 1, Details: map[string]string{"k": "v"},
	})
	if err != nil {
		t.Fatal(err)
	}
	before := read(t, path)
	if len(before) != 1 || before[0].Entry.Outcome != "" || before[0].Entry.Reason != "two\nlines" || before[0].Entry.Fence != 1<<53-1 {
		t.Fatalf("before it is done: %+v", before)
	}
	if err := ended("done"); err != nil {
		t.Fatal(err)
	}
	got := read(t, path)
	if len(got) != 2 || got[1].Entry.Outcome != "done" || got[1].Entry.ID != got[0].Entry.ID || got[1].Entry.Operator != "" {
		t.Fatalf("got %+v", got)
	}
	b, err := os.ReadFile(path)
	if err != nil || !strings.HasPrefix(string(b), `{"v":1,"at":"2026-01-02T02:04:05.000006Z","id":"`) || !strings.Contains(string(b), `"fence":"9007199254740991"`) {
		t.Fatalf("%s, %v", b, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatal(info, err)
	}
}

func TestALineThatWasCutShortStandsAloneAndIsTold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit")
	l := auditlog.New(path, clock)
	if _, err := l.Begin(auditlog.Entry{Action: "one"}); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, whole[:len(whole)-9], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Begin(auditlog.Entry{Action: "two"}); err != nil {
		t.Fatal(err)
	}
	got := read(t, path)
	if len(got) != 2 || !got[0].Damaged || got[1].Damaged || got[1].Entry.Action != "two" || got[1].Number != 2 {
		t.Fatalf("got %+v", got)
	}
	later := append([]byte(`{"v":2,"id":"x","action":"later","chain":"sha256:00"}`), '\n') // of a later version
	if err := os.WriteFile(path, later, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := read(t, path); got[0].Damaged {
		t.Fatalf("a later version's line is called damaged: %+v", got)
	}
}

func TestManyWritersDoNotMixTheirLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit")
	var all sync.WaitGroup
	const writers, each = 8, 10
	for w := range writers {
		all.Go(func() {
			l := auditlog.New(path, clock)
			for i := range each {
				ended, err := l.Begin(auditlog.Entry{Action: fmt.Sprint(w, "/", i), Reason: strings.Repeat("long ", 2000)})
				if err == nil {
					err = ended("done")
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	lines := read(t, path)
	if len(lines) != 2*writers*each {
		t.Fatalf("%d lines, want %d", len(lines), 2*writers*each)
	}
	for _, l := range lines {
		if l.Damaged {
			t.Fatalf("line %d is damaged", l.Number)
		}
	}
}

func TestALogThatCannotBeWrittenSaysSoInOneLine(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{dir, filepath.Join(dir, "no", "audit"), "/dev/null"} {
		_, err := auditlog.New(path, clock).Begin(auditlog.Entry{Action: "a"})
		if !errors.Is(err, lastword.ErrUnavailable) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// What was named by mistake is not written to, nor read for ever.
func TestAFileThatIsNoAuditLogStaysAsItIs(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"a database": "SQLite format 3\x00 and more", "a key": "-----BEGIN PRIVATE KEY-----\n", "a witness": "{\n  \"version\": 1\n}\n",
		"a line": "hello\n", "a letter": "x",
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := auditlog.New(path, clock).Begin(auditlog.Entry{Action: "revoke"})
		var e *lastword.Error
		if !errors.As(err, &e) || e.Code != lastword.CodeUnavailable || !strings.Contains(err.Error(), "it is no audit log") {
			t.Errorf("%s: %v", name, err)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != content {
			t.Errorf("%s has become %q, %v", name, b, err)
		}
	}
	for name, content := range map[string]string{"empty": "", "cut short": `{"v`, "zeros of a crash": "\x00\x00\x00"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := auditlog.New(path, clock).Begin(auditlog.Entry{Action: "revoke"}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := read(t, path); got[len(got)-1].Entry.Action != "revoke" {
			t.Errorf("%s: %+v", name, got)
		}
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, dir} {
		if err := auditlog.Read(path, func(auditlog.Line) error { return nil }); err == nil || !strings.Contains(err.Error(), "cannot be read") {
			t.Errorf("%s: %v", path, err)
		}
		if _, err := auditlog.New(path, clock).Begin(auditlog.Entry{Action: "revoke"}); !errors.Is(err, lastword.ErrUnavailable) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
