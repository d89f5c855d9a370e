package grant_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
)

func TestKeyFileIsMadeOnceWithMode0600(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "key.pem")
	first, created, err := grant.LoadOrCreateKey(path)
	if err != nil || !created || first.ID() == "" {
		t.Fatalf("created %v, %v", created, err)
	}
	again, created, err := grant.LoadOrCreateKey(path)
	if err != nil || created || again.ID() != first.ID() {
		t.Fatalf("second time: created %v, id %s, %v", created, again.ID(), err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Fatalf("mode %v, %v", info.Mode(), err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Fatalf("left behind: %v", entries)
	}
	link := filepath.Join(dir, "link.pem")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if linked, _, err := grant.LoadOrCreateKey(link); err != nil || linked.ID() != first.ID() {
		t.Fatalf("through a link: %v", err)
	}
}

// Of many processes that start at once, one makes the key and all get it.
func TestConcurrentCreationMakesOneKey(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	var mu sync.Mutex
	ids, made := map[string]bool{}, 0
	for range 16 {
		wg.Go(func() {
			k, created, err := grant.LoadOrCreateKey(filepath.Join(dir, "key.pem"))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			if created {
				made++
			}
			ids[k.ID()] = true
		})
	}
	wg.Wait()
	if len(ids) != 1 || made != 1 {
		t.Fatalf("%d keys, made %d times", len(ids), made)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Fatalf("left behind: %v", entries)
	}
}

// T17: a bad key file is refused in one line that names file and way out, is left
// as it was, and is not quoted.
func TestBadKeyFilesAreRefused(t *testing.T) {
	dir := t.TempDir()
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	good := keyPEM(t, private(0))
	file := func(name string, content []byte, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	nowhere, pipe := filepath.Join(dir, "nowhere"), filepath.Join(dir, "pipe")
	if err := errors.Join(os.Symlink(filepath.Join(dir, "none"), nowhere), syscall.Mkfifo(pipe, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path, says string
		is         error
	}{
		{file("group", good, 0o640), "0640", lastword.ErrInvalid},
		{file("world", good, 0o604), "0604", lastword.ErrInvalid},
		{file("world-writes", good, 0o602), "0602", lastword.ErrInvalid},
		{file("ec", keyPEM(t, ec), 0o600), "Ed25519", lastword.ErrInvalid},
		{file("empty", nil, 0o600), "PEM", lastword.ErrInvalid},
		{file("text", []byte("secret words"), 0o600), "PEM", lastword.ErrInvalid},
		{file("twice", append(good, good...), 0o600), "one PEM block", lastword.ErrInvalid},
		{file("other-pem", bytes.ReplaceAll(good, []byte("PRIVATE KEY"), []byte("PUBLIC KEY")), 0o600), "another type", lastword.ErrInvalid},
		{file("broken", []byte("-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n"), 0o600), "PKCS#8", lastword.ErrInvalid},
		{file("large", bytes.Repeat([]byte("x"), 20<<10), 0o600), "too large", lastword.ErrInvalid},
		{dir, "directory", lastword.ErrInvalid},
		{pipe, "regular", lastword.ErrInvalid},
		{nowhere, "link to nowhere", lastword.ErrInvalid},
		{"", "no path", lastword.ErrInvalid},
		{filepath.Join(dir, "no", "key.pem"), "make the directory", lastword.ErrUnavailable},
		{filepath.Join(dir, "text", "key.pem"), "not a directory", lastword.ErrUnavailable},
	} {
		k, created, err := grant.LoadOrCreateKey(c.path)
		if !errors.Is(err, c.is) || created || k.ID() != "" {
			t.Errorf("%s: created %v, %v", c.path, created, err)
			continue
		}
		line := err.Error()
		if !strings.Contains(line, c.path) || !strings.Contains(line, c.says) || strings.Contains(line, "\n") || strings.Contains(line, "secret words") {
			t.Errorf("%s: does not say %q in one line: %s", c.path, c.says, line)
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, "none")); err == nil {
		t.Error("a key was made through the link to nowhere")
	}
}

// T17: no printed, logged or marshalled form shows the key.
func TestKeysDoNotShow(t *testing.T) {
	k := key(t, 0)
	secret := private(0)
	type holder struct {
		Key grant.Key
		key grant.Key
		all []grant.Key
		ptr *grant.Key
	}
	h := holder{k, k, []grant.Key{k}, &k}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T"} {
		fmt.Fprintf(&out, verb+verb+verb+"\n", k, &k, h)
		if got := fmt.Sprintf(verb, k); verb != "%T" && got != k.String() {
			t.Errorf("%s prints %s", verb, got)
		}
	}
	slog.New(slog.NewTextHandler(&out, nil)).Info("key", "key", k, "holder", h)
	slog.New(slog.NewJSONHandler(&out, nil)).Info("key", "key", k, "holder", h)
	b, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	out.Write(b)
	text := out.String()
	for name, leak := range map[string]string{
		"raw": string(secret[:8]), "hex": hex.EncodeToString(secret[:8]), "HEX": strings.ToUpper(hex.EncodeToString(secret[:8])),
		"base64": base64.StdEncoding.EncodeToString(secret[:9]), "decimal": "65 65 65 65", "go": "0x41, 0x41",
	} {
		if strings.Contains(text, leak) {
			t.Errorf("the key shows as %s", name)
		}
	}
	if !strings.Contains(text, "grant.Key("+k.ID()+")") {
		t.Error("the id does not show")
	}
}
