package bench

import (
	"context"
	"fmt"

	"github.com/lastword/lastword/model"
)

var (
	statesPerSecond = Column{"states_per_second", "states/s a core"}
	states          = Column{"states", "states"}
)

// w8 is how fast the model explores.
func w8(ctx context.Context, o Options) (Report, error) {
	r := newReport("W8", "the model explores every order of events", statesPerSecond, states)
	for round := range o.Rounds {
		o.Progress(fmt.Sprintf("W8 round %d of %d", round+1, o.Rounds))
		found, err := model.Run(ctx, model.Options{Scope: "ci"})
		if err != nil {
			return r.Report, err
		}
		if len(found.Violations) > 0 {
			return r.Report, fmt.Errorf("the model found a violation: %s", found.Violations[0].Kind)
		}
		r.add("model, scope ci", "", "1 worker", map[string]float64{
			statesPerSecond.Name: float64(found.StatesPerSecond), states.Name: float64(found.States),
		})
	}
	r.note("simulated rounds are measured by `go test ./lab/simulate -run xxx -bench Signed`; the goal of 300,000 states/s a core is no ratio: it is of the machine")
	return r.Report, nil
}
