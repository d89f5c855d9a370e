package simulate

import (
	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

const domain = "simulated"

type seal struct{}

func newSeal() (*seal, error)                    { return &seal{}, nil }
func (s *seal) reset(*world)                     {}
func (s *seal) again() *seal                     { return s }
func (s *seal) open(w *world, m *message) string { return "" }

type gateway struct{}
type passing struct{}

func newGateway(*world) (*gateway, error)          { return nil, nil }
func (g *gateway) reset(*world)                    {}
func (g *gateway) again(*world) *gateway           { return g }
func (g *gateway) crash(*world)                    {}
func (g *gateway) backup()                         {}
func (g *gateway) restore(*world)                  {}
func (g *gateway) declare(*world, *store)          {}
func (g *gateway) reopen()                         {}
func (g *gateway) lose(uint8)                      {}
func (g *gateway) release(uint8, lastword.Token)   {}
func (g *gateway) verify(*world, uint8)            {}
func (w *world) pass(*message)                     {}
func (w *world) resume(*message)                   {}
func (w *world) sign(uint8, *core.Lease) string    { return "" }
func (w *world) signing() string                   { return keyID }
func (w *world) digest(m *message) lastword.Digest { return leaseDigest(m.lease, m.fence) }

// leaseDigest stands for the digest of a grant where nothing is signed.
func leaseDigest(lease string, fence lastword.Token) (d lastword.Digest) {
	copy(d[:16], lease)
	for i := range 8 {
		d[16+i] = byte(fence >> (8 * i))
	}
	return d
}

type forgery struct{ name, reason string }

var forgeries = []forgery{{"wrong key", "SIGNATURE"}}

func (w *world) forgedRefused(m *message, v lastword.Verdict) {
	w.forgedBy[m.class-1].effect++
}

// found looks for a receipt.
func (w *world) found(m *message) bool {
	return w.place.lane[m.lane].receipts[m.op].known
}

// publish makes the trust bundle of an epoch.
func (w *world) publish(epoch uint32) {
	if epoch > w.bundle.current {
		w.oldBundle = w.bundle
		w.bundle.current = epoch
		w.bundle.sequence++
	}
}

func (w *world) rotate(f *fault) { w.effect(f) }
func (w *world) raiseMinimum(f *fault) {
	w.oldBundle = w.bundle
	w.bundle.minimum = w.bundle.current
	w.bundle.sequence++
	w.effect(f)
}
func (w *world) lateEpoch(f *fault) {}
func (w *world) rollBundle(f *fault) {
	if w.place.bundle.sequence > w.oldBundle.sequence {
		w.place.bundle = w.oldBundle
	}
}
func (w *world) leak(o *owner, f *fault) {}
