package simulate

import "github.com/lastword/lastword"

type gateway struct{}
type passing struct{}

func newGateway(*world) (*gateway, error)        { return nil, nil }
func (g *gateway) reset(*world)                  {}
func (g *gateway) again(*world) *gateway         { return g }
func (g *gateway) crash(*world)                  {}
func (g *gateway) forget()                       {}
func (g *gateway) backup()                       {}
func (g *gateway) restore(*world)                {}
func (g *gateway) declare(*world, *store)        {}
func (g *gateway) reopen()                       {}
func (g *gateway) lose(uint8)                    {}
func (g *gateway) release(uint8, lastword.Token) {}
func (g *gateway) verify(*world, uint8)          {}
func (w *world) pass(*message)                   {}
func (w *world) resume(*message)                 {}

// found looks for a receipt.
func (w *world) found(m *message) bool {
	return w.place.lane[m.lane].receipts[m.op].known
}
