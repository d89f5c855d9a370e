package protect

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/sqldb"
)

// Rollout is the mode of the resources with a prefix, or of one resource (R18). Of
// several the longest counts; without any a resource is in enforce.
type Rollout struct {
	Domain string
	// Prefix ends with a slash, or is "" for all; else it is one resource.
	Prefix string
	// Shadow: the roll-out goes on. It ends once and does not begin again.
	Shadow bool
	Since  time.Time // for people
}

// covers reports whether what prefix says holds for r, a resource or a prefix.
func covers(prefix, r string) bool {
	return prefix == "" || prefix == r || strings.HasSuffix(prefix, "/") && strings.HasPrefix(r, prefix)
}

func checkPrefix(prefix string) error {
	if prefix == "" {
		return nil
	}
	if _, err := lastword.ParseResource(strings.TrimSuffix(prefix, "/")); err != nil {
		return invalid("a prefix ends with a slash; without one it is a resource", "%q: %v", prefix, err)
	}
	return nil
}

// Shadow begins a roll-out, in the caller's transaction. What has ended does not begin
// again.
func Shadow(ctx context.Context, e Engine, q sqldb.Querier, domain, prefix string, at time.Time) error {
	if err := checkPrefix(prefix); err != nil {
		return err
	}
	known, err := Rollouts(ctx, e, q)
	if err != nil {
		return err
	}
	for _, r := range known {
		if r.Domain != domain || !covers(r.Prefix, prefix) {
			continue
		}
		if !r.Shadow {
			return invalid("there is no way back from enforce", "the roll-out of %q has ended", r.Prefix)
		}
		if r.Prefix == prefix {
			return nil
		}
	}
	return set(ctx, e, q, domain, prefix, true, at)
}

// Enforce ends every roll-out that prefix covers, in the caller's transaction, and says
// how many went on. From then on what prefix covers is in enforce.
func Enforce(ctx context.Context, e Engine, q sqldb.Querier, domain, prefix string, at time.Time) (ended int, err error) {
	if err := checkPrefix(prefix); err != nil {
		return 0, err
	}
	known, err := Rollouts(ctx, e, q)
	if err != nil {
		return 0, err
	}
	over := false // nothing is left to be ended
	for _, r := range known {
		if r.Domain == domain && !r.Shadow && covers(r.Prefix, prefix) {
			over = true
		}
		if r.Domain != domain || !r.Shadow {
			continue
		}
		if covers(r.Prefix, prefix) || covers(prefix, r.Prefix) {
			ended++
		}
		if covers(prefix, r.Prefix) && r.Prefix != prefix {
			if err := set(ctx, e, q, domain, r.Prefix, false, at); err != nil {
				return 0, err
			}
		}
	}
	if ended == 0 {
		if over {
			return 0, nil
		}
		if err := meant(ctx, e, q, domain, prefix, known); err != nil {
			return 0, err
		}
	}
	if err := set(ctx, e, q, domain, prefix, false, at); err != nil {
		return 0, err
	}
	return ended, tighten(ctx, e, q, domain, prefix, at)
}

// meant refuses what is likely a slip of the pen, where no roll-out goes on: what is kept
// stays for ever, and whoever has misspelt it believes that something has ended.
func meant(ctx context.Context, e Engine, q sqldb.Querier, domain, prefix string, known []Rollout) error {
	if prefix == "" {
		return nil
	}
	for _, r := range known {
		if r.Domain == domain && covers(prefix, r.Prefix) {
			return nil
		}
	}
	there, err := recorded(ctx, e, q, domain, prefix)
	if err != nil || there {
		return err
	}
	if strings.ContainsAny(prefix, "%*?") {
		return invalid("a prefix ends with a slash, and nothing stands for other characters", "no resource %q has a record, and no roll-out goes on there", prefix)
	}
	tables, err := read(ctx, e, q)
	if err != nil {
		return err
	}
	for _, t := range tables {
		if p := t.Template.Prefix(); t.Domain == domain && (covers(p, prefix) || covers(prefix, p)) {
			return nil
		}
	}
	return invalid("look at the roll-outs with lastword fence status; without one everything is in enforce",
		"no roll-out goes on at %q, and it has no record and no protected table", prefix)
}

// recorded reports whether a resource that prefix covers has a record.
func recorded(ctx context.Context, e Engine, q sqldb.Querier, domain, prefix string) (there bool, err error) {
	is := "resource = CAST(%[3]s AS text)"
	if strings.HasSuffix(prefix, "/") {
		is = "substr(resource, 1, length(CAST(%[3]s AS text))) = CAST(%[3]s AS text)"
	}
	err = q.QueryRowContext(ctx, fmt.Sprintf("SELECT EXISTS (SELECT 1 FROM %[1]s WHERE domain = %[2]s AND "+is+")",
		e.Dialect().Table("lastword_fence"), e.place(1), e.place(2)), domain, prefix).Scan(&there)
	return there, err
}

// tighten makes the triggers of tables whose roll-out has ended as a whole anew, without
// what counts.
func tighten(ctx context.Context, e Engine, q sqldb.Querier, domain, prefix string, at time.Time) error {
	tables, err := read(ctx, e, q)
	if err != nil {
		return err
	}
	for _, t := range tables {
		if t.Domain != domain || !t.Shadow || t.Open || !covers(prefix, t.Template.Prefix()) {
			continue
		}
		t.Shadow = false
		if _, ok := e.(PostgreSQL); !ok { // whose triggers ask when they have something to refuse
			if err := e.write(ctx, q, t.Spec); err != nil {
				return err
			}
		}
		if err := keep(ctx, e, q, t.Spec, false, at); err != nil {
			return err
		}
	}
	return nil
}

func set(ctx context.Context, e Engine, q sqldb.Querier, domain, prefix string, shadow bool, at time.Time) error {
	_, err := q.ExecContext(ctx, fmt.Sprintf(`INSERT INTO %s (domain, prefix, shadow, since) VALUES (%s, %s, %s, %s)
ON CONFLICT (domain, prefix) DO UPDATE SET shadow = excluded.shadow, since = excluded.since`,
		e.Dialect().Table("lastword_rollout"), e.place(1), e.place(2), e.place(3), e.place(4)),
		domain, prefix, bit(shadow), at.UTC().Format(timeLayout))
	return err
}

// Rollouts lists them.
func Rollouts(ctx context.Context, e Engine, q sqldb.Querier) (all []Rollout, err error) {
	rows, err := q.QueryContext(ctx, "SELECT domain, prefix, shadow, since FROM "+e.Dialect().Table("lastword_rollout")+" ORDER BY domain, prefix")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var r Rollout
		var since string
		if err := rows.Scan(&r.Domain, &r.Prefix, &r.Shadow, &since); err != nil {
			return nil, err
		}
		if r.Since, err = time.Parse(timeLayout, since); err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, rows.Err()
}
