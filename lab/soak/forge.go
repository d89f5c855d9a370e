package soak

import (
	"context"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/fence/sqlfence"
	"github.com/lastword/lastword/grant"
)

// forged is what the forger has to work with: a grant that is good at this moment, one
// that was good once, a good one of another resource, and a key of its own.
type forged struct {
	good, old, other string
	seen             grant.Unverified
	signer           *grant.Signer
}

// forgeries are the classes of forged and tampered grants (X35). Those that only a
// verifier's own tests can make, with the true key, are not among them.
var forgeries = []struct {
	name string
	make func(f forged) (string, error)
}{
	{"signed by a stranger", func(f forged) (string, error) { return f.sign(func(*grant.Claims) {}) }},
	{"raised fence signed by a stranger", func(f forged) (string, error) { return f.sign(func(c *grant.Claims) { c.Fence++ }) }},
	{"a stranger's signature under a true key id", func(f forged) (string, error) {
		g, err := f.sign(func(c *grant.Claims) { c.Fence++ })
		return swap(g, f.good, 0), err
	}},
	{"raised fence under the true signature", func(f forged) (string, error) {
		return f.edit(fmt.Sprintf(`"fence":%d`, f.seen.Claims.Fence), fmt.Sprintf(`"fence":%d`, f.seen.Claims.Fence+1))
	}},
	{"another owner under the true signature", func(f forged) (string, error) { return f.edit(f.seen.Claims.Owner, attackerName) }},
	{"algorithm none", func(f forged) (string, error) {
		header := fmt.Sprintf(`{"alg":"none","kid":%q,"typ":%q}`, f.seen.KeyID, grant.Type)
		parts := strings.Split(f.good, ".")
		return base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + parts[1] + ".", nil
	}},
	{"signature cut short", func(f forged) (string, error) { return f.good[:len(f.good)-4], nil }},
	{"no signature", func(f forged) (string, error) { return f.good[:strings.LastIndexByte(f.good, '.')+1], nil }},
	{"two parts", func(f forged) (string, error) { return f.good[:strings.LastIndexByte(f.good, '.')], nil }},
	{"padded", func(f forged) (string, error) { return f.good + "=", nil }},
	{"not canonical", func(f forged) (string, error) { return f.edit(`{"`, `{ "`) }},
	{"member twice", func(f forged) (string, error) { return f.edit(`{"`, `{"fence":1,"`) }},
	{"too large", func(f forged) (string, error) { return f.good + strings.Repeat("A", grant.MaxBytes), nil }},
	{"empty", func(forged) (string, error) { return "", nil }},
	{"of another resource", func(f forged) (string, error) { return f.other, nil }},
	{"of a tenure that is over", func(f forged) (string, error) { return f.old, nil }},
}

func (f forged) sign(change func(*grant.Claims)) (string, error) {
	c := f.seen.Claims
	change(&c)
	g, _, err := f.signer.Sign("", c)
	return g, err
}

// edit changes the claims and leaves the signature.
func (f forged) edit(old, next string) (string, error) {
	parts := strings.Split(f.good, ".")
	claims, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return "", err
	}
	changed := strings.Replace(string(claims), old, next, 1)
	if changed == string(claims) {
		return "", fmt.Errorf("the claims have no %q", old)
	}
	parts[1] = base64.RawURLEncoding.EncodeToString([]byte(changed))
	return strings.Join(parts, "."), nil
}

// swap puts one part of another grant into g.
func swap(g, from string, part int) string {
	parts, theirs := strings.Split(g, "."), strings.Split(from, ".")
	if len(parts) != 3 || len(theirs) != 3 {
		return g
	}
	parts[part] = theirs[part]
	return strings.Join(parts, ".")
}

// forger is somebody who can reach the resource and has no right to.
type forger struct {
	cell   *cell
	gate   *sqlfence.Fence
	signer *grant.Signer
	sent   int
}

func newForger(ctx context.Context, c *cell) (*forger, error) {
	key, err := grant.NewKey()
	if err != nil {
		return nil, err
	}
	f := &forger{cell: c}
	if f.signer, err = grant.NewSigner(Domain, key); err != nil {
		return nil, err
	}
	// The gate is an honest one: a forger may only bring what it has.
	f.gate, err = openGate(ctx, c.db, c.run.keeper.client, c.run.keeper.client)
	return f, err
}

func (f *forger) close() error {
	if f.gate == nil {
		return nil
	}
	return f.gate.Close()
}

// strike tries one class while nobody else writes, and looks at the record on both
// sides of it.
func (f *forger) strike(ctx context.Context, class, good, old, other string) error {
	have := forged{good: good, old: old, other: other, signer: f.signer}
	var err error
	if have.seen, err = grant.Inspect(good); err != nil {
		return err
	}
	made := ""
	for _, c := range forgeries {
		if c.name == class {
			if made, err = c.make(have); err != nil {
				return err
			}
		}
	}
	name := forgeryName(class)
	c := f.cell
	before, err := c.record(ctx)
	if err != nil {
		return err
	}
	f.sent++
	c.run.tally.fired(name)
	c.run.count("forged_sent", 1)
	m := lastword.Mutation{Grant: made, Operation: fmt.Sprintf("forged-%s-%d", c.name, f.sent), Payload: lastword.DigestOf([]byte("forged"))}
	_, err = f.gate.ApplyMutation(ctx, c.resource, m, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE document SET value = 'forged' WHERE id = ?`, string(c.resource))
		return err
	})
	after, looked := c.record(ctx)
	if looked != nil {
		return looked
	}
	if before != after {
		c.run.broke("highwater_polluted", fmt.Sprintf("%s: %q moved the record from %+v to %+v", c.resource, class, before, after))
	}
	var refused *lastword.Error
	switch {
	case err == nil:
		c.run.broke("forged_accepted", fmt.Sprintf("%s: %q was accepted", c.resource, class))
	case errors.As(err, &refused):
		c.run.tally.effect(refused.Code != lastword.CodeStatusUnavailable && refused.Code != lastword.CodeUnavailable, name)
	default:
		return err
	}
	return f.strikeAuthority(ctx, have)
}

// strikeAuthority asks for things in another tenure's name.
func (f *forger) strikeAuthority(ctx context.Context, have forged) error {
	c, claims := f.cell, have.seen.Claims
	ref := lastword.TenureRef{Resource: claims.Resource, Owner: claims.Owner, RequestID: claims.RequestID, LeaseID: claims.LeaseID, Fence: claims.Fence}
	guess := ref
	guess.Fence++
	guess.Owner = attackerName
	_, renewed := c.attacker.Renew(ctx, guess)
	stolen := ref
	stolen.Owner = attackerName
	released := c.attacker.Release(ctx, stolen)
	completed := c.attacker.Complete(ctx, stolen, []byte("forged"))
	c.run.count("forged_sent", 3)
	for what, err := range map[string]error{"a renewal": renewed, "a release": released, "a completion": completed} {
		if err == nil {
			c.run.broke("forged_accepted", fmt.Sprintf("%s: %s in another tenure's name was accepted", c.resource, what))
		}
	}
	return nil
}

func forgeryName(class string) string { return string(forgery) + ": " + class }
