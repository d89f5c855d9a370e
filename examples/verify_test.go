package examples_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
)

// verifiers are the commands that verify a grant in another language, with what that
// language's stock library can do. One that is missing fails: without it nothing shows
// that the format can be read by others.
func verifiers(t *testing.T) map[string][]string {
	t.Helper()
	return map[string][]string{
		"python": {python(t), "verify-python/verify.py"},
		"node":   {lookPath(t, "node", "nodejs"), "verify-node/verify.mjs"},
	}
}

// python is an interpreter that has the libraries, Debian's first.
func python(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"/usr/bin/python3", "python3"} {
		if exec.CommandContext(t.Context(), name, "-c", "import jwt, cryptography").Run() == nil {
			return name
		}
	}
	t.Fatal("no python3 with the modules jwt and cryptography: apt-get install python3-jwt python3-cryptography")
	return ""
}

func lookPath(t *testing.T, name, debian string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("no %s: apt-get install %s", name, debian)
	}
	return path
}

// verify runs one verifier and gives its exit code.
func verify(t *testing.T, command []string, args ...string) (code int, out string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	b, err := exec.CommandContext(ctx, command[0], append(command[1:len(command):len(command)], args...)...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v: %v\n%s", command, err, b)
	}
	if exit != nil {
		code = exit.ExitCode()
	}
	return code, string(b)
}

// Protocol §3, T3 to T10, T14: other languages say the same to every vector.
func TestOtherLanguagesAgreeWithTheVectors(t *testing.T) {
	t.Parallel()
	files := []string{"../spec/vectors/grant.json", "../spec/vectors/proof.json", "../spec/vectors/bundle.json"}
	// A check that has never failed proves nothing: one class that is wrong.
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	// Read here as well, because the test cache does not see what a child reads.
	for _, name := range append(files, "verify-python/verify.py", "verify-node/verify.mjs") {
		if _, err := os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	wrong := filepath.Join(t.TempDir(), "grant.json")
	if err := os.WriteFile(wrong, bytes.Replace(b, []byte(`"class": "signature"`), []byte(`"class": "accept"`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, command := range verifiers(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, out := verify(t, command, append([]string{"--vectors"}, files...)...)
			if code != 0 {
				t.Fatalf("exit code %d:\n%s", code, out)
			}
			wantInOrder(t, out, " grants\n", " proofs\n", " bundles\n")
			if code, out := verify(t, command, "--vectors", wrong, files[1], files[2]); code != 1 || !strings.Contains(out, "got signature, want accept") {
				t.Fatalf("a wrong vector: exit code %d:\n%s", code, out)
			}
		})
	}
}

// A grant of now with the bundle of now, as an operator would hand them over.
func TestOtherLanguagesVerifyAGrantWithTheExportedBundle(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key, err := grant.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	ring, err := grant.OpenRing(grant.RingConfig{Dir: filepath.Join(dir, "ring"), Domain: "billing", First: key})
	if err != nil {
		t.Fatal(err)
	}
	bundle := filepath.Join(dir, "bundle.json")
	if err := errors.Join(ring.Advance(3, 10*time.Second), ring.Export(bundle)); err != nil {
		t.Fatal(err)
	}
	sign := func(resource lastword.Resource, owner string) string {
		fence, err := lastword.MakeToken(3, 1<<33-1)
		if err != nil {
			t.Fatal(err)
		}
		g, _, err := ring.Signer().Sign("", grant.Claims{
			Domain: "billing", Resource: resource, Owner: owner, RequestID: "r1", LeaseID: "l1", Fence: fence,
			Class: lastword.ClassWrite, TTL: time.Minute, IssuedAt: time.Unix(1_800_000_000, 0),
		})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	const resource, owner = `döc/"a"\b/<&>` + "\u2028", "späher"
	good := sign(resource, owner)
	spliced := good[:strings.LastIndexByte(good, '.')] + sign("doc/b", owner)[strings.LastIndexByte(sign("doc/b", owner), '.'):]
	for name, command := range verifiers(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := []string{"--bundle", bundle, "--domain", "billing", "--resource", resource, "--owner", owner}
			if code, out := verify(t, command, append(args, good)...); code != 0 || !strings.Contains(out, "fence 34359738367 of "+owner) {
				t.Fatalf("exit code %d: %s", code, out)
			}
			for bad, says := range map[string]string{spliced: "refused: signature", sign("doc/b", owner): "refused: binding", sign(resource, "b"): "refused: binding", good + "=": "refused: shape"} {
				if code, out := verify(t, command, append(args, bad)...); code != 1 || !strings.Contains(out, says) {
					t.Errorf("exit code %d: %s, want %s", code, out, says)
				}
			}
			args[3] = "staging"
			if code, out := verify(t, command, append(args, good)...); code != 1 || !strings.Contains(out, "refused: domain") {
				t.Errorf("another domain: exit code %d: %s", code, out)
			}
		})
	}
}
