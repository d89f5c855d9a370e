package simulate

import "context"

// Run runs the rounds. A violation is no error: it is in the report. The error is
// INVALID for options that name nothing, or ctx's.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return &Report{Options: o.Expanded()}, nil
}
