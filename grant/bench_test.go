package grant_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/lastword/lastword/grant"
)

func benchmarkOpen(b *testing.B, cfg grant.VerifierConfig) {
	w := newWorld(b)
	v := w.verifier(b, cfg)
	g, need, ctx := w.sign(b, claims(b)), want(b), b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := v.Open(ctx, g, need); err != nil {
			b.Fatal(err)
		}
	}
}

// Every sight is the first.
func BenchmarkOpenCold(b *testing.B) { benchmarkOpen(b, grant.VerifierConfig{Memory: -1}) }

// Every sight but the first is a repetition.
func BenchmarkOpenWarm(b *testing.B) { benchmarkOpen(b, grant.VerifierConfig{}) }

func BenchmarkOpenWarmParallel(b *testing.B) {
	w := newWorld(b)
	v := w.verifier(b, grant.VerifierConfig{})
	g, need, ctx := w.sign(b, claims(b)), want(b), b.Context()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := v.Open(ctx, g, need); err != nil {
				b.Error(err)
			}
		}
	})
}

// The yardstick of OpenCold: the signature alone, of the same bytes.
func BenchmarkEd25519Verify(b *testing.B) {
	w := newWorld(b)
	g := w.sign(b, claims(b))
	dot := strings.LastIndexByte(g, '.')
	message := []byte(g[:dot])
	sig, err := base64.RawURLEncoding.DecodeString(g[dot+1:])
	if err != nil {
		b.Fatal(err)
	}
	public := ed25519.PublicKey(private(0)[32:])
	b.ReportAllocs()
	for b.Loop() {
		if !ed25519.Verify(public, message, sig) {
			b.Fatal("refused")
		}
	}
}

func BenchmarkSign(b *testing.B) {
	w := newWorld(b)
	c := claims(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := w.signer.Sign("", c); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDigest(b *testing.B) {
	w := newWorld(b)
	c := claims(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := w.signer.Digest("", c); err != nil {
			b.Fatal(err)
		}
	}
}

// W6: a grant seen before costs no allocation.
func TestWarmOpenDoesNotAllocate(t *testing.T) {
	w := newWorld(t)
	v := w.verifier(t, grant.VerifierConfig{})
	g, need, ctx := w.sign(t, claims(t)), want(t), t.Context()
	if _, err := v.Open(ctx, g, need); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() {
		if got, err := v.Open(ctx, g, need); err != nil || got.Claims().Fence == 0 {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}
