package grant_test

import (
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
)

// A full run: go test ./grant -run Mutated -mutations 1000000 -v
var (
	mutations    = flag.Int("mutations", 100_000, "how many mutated grants TestMutatedGrants tries")
	mutationSeed = flag.Uint64("mutation-seed", 0, "its seed; 0 takes a new one")
)

// mutant makes grants that nobody signed out of some that were.
type mutant struct {
	*rand.Rand
	good []string
}

var mutationKinds = []string{"bits", "bytes", "truncation", "extension", "deletion", "splice", "segments", "fields", "spelling", "signature"}

func (m *mutant) one() (kind, changed string) {
	g, other := m.good[m.IntN(len(m.good))], m.good[m.IntN(len(m.good))]
	kind = mutationKinds[m.IntN(len(mutationKinds))]
	b := []byte(g)
	switch kind {
	case "bits":
		for range 1 + m.IntN(3) {
			b[m.IntN(len(b))] ^= 1 << m.IntN(8)
		}
	case "bytes": // of the alphabet, so that more of it decodes
		for range 1 + m.IntN(3) {
			b[m.IntN(len(b))] = other[m.IntN(len(other))]
		}
	case "truncation":
		b = b[:m.IntN(len(b))]
	case "extension":
		for range 1 + m.IntN(8) {
			b = append(b, other[m.IntN(len(other))])
		}
	case "deletion":
		at := m.IntN(len(b))
		b = append(b[:at], b[min(len(b), at+1+m.IntN(8)):]...)
	case "splice":
		at := m.IntN(min(len(g), len(other)))
		b = []byte(g[:at] + other[at:])
	case "segments":
		p, q := strings.Split(g, "."), strings.Split(other, ".")
		for i := range p {
			if m.IntN(2) == 0 {
				p[i] = q[i]
			}
		}
		b = []byte(strings.Join(p, "."))
	case "fields":
		b = []byte(m.reworked(g, func(h, c string) (string, string) { return h, m.swapped(c, other) }))
	case "spelling":
		b = []byte(m.reworked(g, func(h, c string) (string, string) {
			if m.IntN(2) == 0 {
				return m.respelled(h), c
			}
			return h, m.respelled(c)
		}))
	case "signature":
		last := strings.LastIndexByte(g, '.')
		sig, _ := base64.RawURLEncoding.DecodeString(g[last+1:])
		sig[m.IntN(len(sig))] ^= byte(1 + m.IntN(255))
		b = []byte(g[:last+1] + b64(sig))
	}
	return kind, string(b)
}

// reworked puts other JSON under the signature that is there.
func (m *mutant) reworked(g string, change func(header, claims string) (string, string)) string {
	p := strings.Split(g, ".")
	h, _ := base64.RawURLEncoding.DecodeString(p[0])
	c, _ := base64.RawURLEncoding.DecodeString(p[1])
	header, claims := change(string(h), string(c))
	return b64([]byte(header)) + "." + b64([]byte(claims)) + "." + p[2]
}

// swapped takes one member's value from elsewhere: another grant, another member, or
// a number nearby.
func (m *mutant) swapped(claims, other string) string {
	p := strings.Split(other, ".")
	raw, _ := base64.RawURLEncoding.DecodeString(p[1])
	mine, theirs := members(claims), members(string(raw))
	i := m.IntN(len(mine))
	switch m.IntN(3) {
	case 0:
		mine[i] = theirs[i]
	case 1:
		j := m.IntN(len(mine))
		a, b, _ := strings.Cut(mine[i], ":")
		c, d, _ := strings.Cut(mine[j], ":")
		mine[i], mine[j] = a+":"+d, c+":"+b
	default:
		name, _, _ := strings.Cut(mine[i], ":")
		mine[i] = fmt.Sprintf("%s:%d", name, m.Uint64N(1<<54))
	}
	return "{" + strings.Join(mine, ",") + "}"
}

func members(claims string) []string { return strings.Split(strings.Trim(claims, "{}"), ",") }

// respelled says the same in other bytes, or nearly.
func (m *mutant) respelled(object string) string {
	all := members(object)
	i := m.IntN(len(all))
	switch m.IntN(6) {
	case 0:
		j := m.IntN(len(all))
		all[i], all[j] = all[j], all[i]
	case 1:
		all = append(all, all[i])
	case 2:
		all[i] = strings.Replace(all[i], ":", ": ", 1)
	case 3:
		all[i] = strings.ToUpper(all[i][:2]) + all[i][2:]
	case 4:
		all[i] += ".0"
	default:
		c := all[i][1]
		all[i] = fmt.Sprintf(`"\u%04x`, c) + all[i][2:]
	}
	return "{" + strings.Join(all, ",") + "}"
}

// T5 to T7, P3: of any number of mutated grants not one is accepted, and none makes the
// verifier panic.
func TestMutatedGrants(t *testing.T) {
	if testing.Short() {
		t.Skip("heavy: runs without the race detector")
	}
	w := newWorld(t)
	v := w.verifier(t, grant.VerifierConfig{})
	var good []string
	signed := map[string]bool{}
	for i := range 16 {
		c := claims(t)
		c.Fence, c.Owner = fence(t, uint32(4+i%2), uint64(41+i)), fmt.Sprint("worker-", i)
		c.Resource, c.LeaseID = lastword.Resource(fmt.Sprint("doc/", i)), fmt.Sprint("lease-", i)
		g := w.sign(t, c)
		good, signed[g] = append(good, g), true
		must(t, second(v.Open(t.Context(), g, grant.Want{Resource: c.Resource}))) // so that all are remembered
	}
	seed := *mutationSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("%d mutations with -mutation-seed %d", *mutations, seed)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var left atomic.Int64
	left.Store(int64(*mutations))
	reasons, kinds, began := map[grant.Reason]int{}, map[string]int{}, time.Now()
	for n := range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			m := &mutant{rand.New(rand.NewPCG(seed, uint64(n))), good}
			ours, ourKinds := map[grant.Reason]int{}, map[string]int{}
			for left.Add(-1) >= 0 {
				kind, g := m.one()
				for signed[g] { // a splice of equals
					kind, g = m.one()
				}
				// The resource is the one the grant names, so that nothing else refuses it.
				need := grant.Want{Resource: "doc/0"}
				if u, err := grant.Inspect(g); err == nil {
					need.Resource = u.Claims.Resource
				}
				_, err := v.Open(t.Context(), g, need)
				if !errors.Is(err, lastword.ErrUnverified) {
					t.Errorf("%s: accepted, or no refusal (%v): %s", kind, err, g)
					return
				}
				ours[grant.ReasonOf(err)]++
				ourKinds[kind]++
			}
			mu.Lock()
			defer mu.Unlock()
			for r, n := range ours {
				reasons[r] += n
			}
			for k, n := range ourKinds {
				kinds[k] += n
			}
		})
	}
	wg.Wait()
	t.Logf("%v in %v: %v", kinds, time.Since(began).Round(time.Millisecond), reasons)
	for _, r := range []grant.Reason{grant.ReasonSignature, grant.ReasonNotCanonical, grant.ReasonEncoding, grant.ReasonDuplicateMember} {
		if reasons[r] == 0 && *mutations >= 10_000 {
			t.Errorf("no mutation got as far as %s: the mutations are too coarse", r)
		}
	}
}
