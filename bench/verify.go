package bench

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"runtime"
	"strings"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
)

var (
	microsEach  = Column{"us_each", "each"}
	allocations = Column{"allocations", "allocations each"}
)

const (
	coldVerify = "grant, first sight"
	warmVerify = "grant, seen before"
	signature  = "ed25519.Verify alone"
)

// w6 is how long it takes to believe a grant.
func w6(ctx context.Context, o Options) (Report, error) {
	r := newReport("W6", "a grant is verified", microsEach, allocations)
	sides, err := verifications(ctx)
	if err != nil {
		return r.Report, err
	}
	err = inTurns(sides, o.Rounds, func(_ int, s verification) error {
		o.Progress("W6: " + s.name)
		each, allocs, err := repeat(ctx, min(o.Duration, time.Second), s.once)
		r.add(s.name, "", "1 goroutine", map[string]float64{microsEach.Name: micros(each), allocations.Name: allocs})
		return err
	})
	r.ratio("1 goroutine", microsEach.Name, coldVerify, signature, goal{atMost: 1.5})
	r.ratio("1 goroutine", microsEach.Name, warmVerify, signature, goal{})
	r.note("the goal of a grant that was seen before is no ratio: 1 µs and no allocation")
	return r.Report, err
}

type verification struct {
	name string
	once func() error
}

func verifications(ctx context.Context) ([]verification, error) {
	key, err := grant.NewKey()
	if err != nil {
		return nil, err
	}
	signer, err := grant.NewSigner(domain, key)
	if err != nil {
		return nil, err
	}
	fence, err := lastword.MakeToken(1, 1)
	if err != nil {
		return nil, err
	}
	c := grant.Claims{
		Domain: domain, Resource: "invoice-batch/2026-07-19", Owner: "worker-a/4711/JWOQA6DNUW6CGGN2WZUE5WATZ4",
		RequestID: "BTAYDUUGUCGAK4LNQR7QNM4K4T", LeaseID: "lease-ouy7y6w7ll2bxuogst2o", Fence: fence,
		Class: lastword.ClassWrite, TTL: lockTTL, IssuedAt: time.Date(2026, 7, 19, 8, 30, 0, 0, time.UTC), Revision: 1,
	}
	signed, _, err := signer.Sign("", c)
	if err != nil {
		return nil, err
	}
	bundle, err := signer.Bundle(grant.BundleInfo{Sequence: 1, CurrentEpoch: 1, MinimumEpoch: 1, RefreshHint: time.Hour})
	if err != nil {
		return nil, err
	}
	open := func(cfg grant.VerifierConfig) (func() error, error) {
		v, err := grant.NewVerifier(domain, grant.StaticBundle(bundle), cfg)
		return func() error {
			_, err := v.Open(ctx, signed, grant.Want{Resource: c.Resource})
			return err
		}, err
	}
	cold, err := open(grant.VerifierConfig{Memory: -1})
	if err != nil {
		return nil, err
	}
	warm, err := open(grant.VerifierConfig{})
	if err != nil {
		return nil, err
	}
	alone, err := signatureAlone([]byte(signed[:strings.LastIndexByte(signed, '.')]))
	return []verification{{coldVerify, cold}, {warmVerify, warm}, {signature, alone}}, err
}

// signatureAlone checks a signature of the same bytes.
func signatureAlone(message []byte) (func() error, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	sig := ed25519.Sign(private, message)
	return func() error {
		if !ed25519.Verify(public, message, sig) {
			return errors.New("the signature is refused")
		}
		return nil
	}, nil
}

// repeat runs once for about d, and returns what one run takes and allocates. The
// first run is not counted.
func repeat(ctx context.Context, d time.Duration, once func() error) (each time.Duration, allocs float64, err error) {
	if err := once(); err != nil {
		return 0, 0, err
	}
	var before, after runtime.MemStats
	n, elapsed := 0, time.Duration(0)
	runtime.ReadMemStats(&before)
	for start := time.Now(); elapsed < d; elapsed = time.Since(start) {
		for range 100 {
			if err := once(); err != nil {
				return 0, 0, err
			}
		}
		n += 100
		if err := ctx.Err(); err != nil {
			return 0, 0, context.Cause(ctx)
		}
	}
	runtime.ReadMemStats(&after)
	// Whatever the runtime allocates meanwhile is far less than one a run.
	return elapsed / time.Duration(n), float64((after.Mallocs - before.Mallocs) / uint64(n)), nil
}
