package authority_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/authority"
)

// R9: two processes on one store do at random what can be done, watchers come and go
// and read at random. Revisions never go back (next checks it), and in the end
// everybody has seen how everything is.
func TestR9EveryWatcherEndsUpWithTheNewestStateOfEveryResource(t *testing.T) {
	for range 8 {
		seed := rand.Uint64()
		inBubble(t, func(t *testing.T, w *world) {
			t.Logf("seed %d", seed)
			rnd := rand.New(rand.NewPCG(seed, 1))
			both := []*authority.Authority{w.open(authority.Config{}), w.open(authority.Config{})}
			for i := range 300 { // more than two pages
				mustAcquire(t, both[i%2], on(fmt.Sprintf("r%03d", i), "o", "0", time.Duration(1+rnd.IntN(20))*time.Second))
			}
			var all sync.WaitGroup
			newest := make([]map[lastword.Resource]string, 6)
			over := make(chan struct{})
			for i := range newest {
				rnd := rand.New(rand.NewPCG(seed, uint64(i)))
				prefix, a := []string{"", "r", "r1", "r29"}[i%4], both[i%2]
				all.Go(func() {
					time.Sleep(time.Duration(rnd.IntN(5000)) * time.Millisecond)
					v := watch(t, a, prefix)
					defer v.stop()
					newest[i] = map[lastword.Resource]string{}
					for {
						select {
						case <-over:
							for { // what is left
								select {
								case s := <-v.sights:
									newest[i][s.Status.Resource] = s.String()
									continue
								case <-time.After(5 * time.Second):
								}
								return
							}
						default:
						}
						if rnd.IntN(50) == 0 {
							time.Sleep(time.Duration(rnd.IntN(3000)) * time.Millisecond)
						}
						select {
						case s := <-v.sights:
							if st := s.Status; !s.Complete {
								if st.Revision < v.last[st.Resource] {
									t.Errorf("%s: revision %d after %d", s, st.Revision, v.last[st.Resource])
								}
								v.last[st.Resource] = st.Revision
								newest[i][st.Resource] = s.String()
							}
						case <-over:
						}
					}
				})
			}
			for i := range 3000 {
				a := both[rnd.IntN(2)]
				r := on(fmt.Sprintf("r%03d", rnd.IntN(320)), "o", fmt.Sprint(i), time.Duration(100+rnd.IntN(20_000))*time.Millisecond)
				got, err := a.Acquire(t.Context(), r)
				if err == nil {
					switch rnd.IntN(4) {
					case 0:
						err = both[rnd.IntN(2)].Release(t.Context(), got.TenureRef)
					case 1:
						err = both[rnd.IntN(2)].Revoke(t.Context(), r.Resource, got.Fence, "op", "r")
					case 2:
						_, err = both[rnd.IntN(2)].Renew(t.Context(), got.TenureRef)
					}
					if err != nil {
						t.Errorf("what was granted cannot be used: %v", err)
					}
				}
				if rnd.IntN(20) == 0 {
					time.Sleep(time.Duration(rnd.IntN(200)) * time.Millisecond)
				}
			}
			time.Sleep(30 * time.Second) // every tenure lapses
			close(over)
			all.Wait()
			for i, got := range newest {
				prefix := []string{"", "r", "r1", "r29"}[i%4]
				want := map[lastword.Resource]string{}
				for _, st := range listAll(t, both[i%2], lastword.ListQuery{Prefix: prefix, All: true}) {
					want[st.Resource] = seen{Sight: lastword.Sight{Status: st}}.String()
				}
				delete(got, "")
				if !maps.Equal(got, want) {
					for r, text := range want {
						if got[r] != text {
							t.Errorf("watcher %d of %q: %s was last shown as %q, and is %q", i, prefix, r, got[r], text)
						}
					}
				}
			}
		})
	}
}
