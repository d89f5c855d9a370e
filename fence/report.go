package fence

import (
	"context"
	"sync"

	"github.com/lastword/lastword"
)

// maxGrants bounds how many grants are remembered for a report.
const maxGrants = 1024

// grants remembers the grant of the highest fence of each record that was admitted
// here. A record keeps a digest only: grants are not to be stored.
type grants struct {
	mu    sync.Mutex
	known map[Key]rememberedGrant
}

type rememberedGrant struct {
	fence lastword.Token
	grant string
}

func newGrants() *grants { return &grants{known: make(map[Key]rememberedGrant)} }

func (s *grants) put(key Key, fence lastword.Token, grant string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, ok := s.known[key]
	if ok && old.fence >= fence {
		return
	}
	for other := range s.known {
		if ok || len(s.known) < maxGrants {
			break
		}
		delete(s.known, other)
	}
	s.known[key] = rememberedGrant{fence, grant}
}

func (s *grants) get(key Key, fence lastword.Token) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, ok := s.known[key]
	return g.grant, ok && g.fence == fence
}

// remember keeps the grant of an admitted call, if there is somebody to report to.
func (w *passage) remember() {
	if w.g.cfg.Reporter != nil && w.grant != "" {
		w.g.grants.put(w.key, w.attempt.Fence, w.grant)
	}
}

// report tells the authority why a record was frozen (R10). It is evidence for others:
// whether it arrives changes nothing here.
func (w *passage) report(ctx context.Context, why string, rec Record) {
	g := w.g
	if g.cfg.Reporter == nil || w.call.Imported != nil {
		return
	}
	stored, known := g.grants.get(w.key, rec.Fence)
	var evidence []string
	if known {
		evidence = append(evidence, stored)
	}
	if why == "OTHER_LEASE" && w.grant != stored { // one of two with this fence
		evidence = append(evidence, w.grant)
	}
	if len(evidence) == 0 {
		g.cfg.Logger.Warn("nothing to report to the authority: the grant of the stored fence is not known to this process",
			"resource", w.key.Resource, "fence", rec.Fence)
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.cfg.AskTimeout)
	defer cancel()
	for _, signed := range evidence {
		a, err := g.cfg.Reporter.Report(ctx, lastword.Report{Resource: w.key.Resource, Grant: signed, Reporter: g.reporter()})
		if err != nil {
			g.cfg.Logger.Warn("the authority was not told of a frozen record", "resource", w.key.Resource, "error", err)
			continue
		}
		g.cfg.Logger.Warn("the authority was told of a frozen record", "resource", w.key.Resource, "fence", rec.Fence, "counted", a.Counted)
	}
}

// reporter is who tells: the name of this gate, where nobody is authenticated.
func (g *Gate) reporter() string {
	if g.cfg.Caller != "" {
		return g.cfg.Caller
	}
	return "fence"
}
