package simulate

import (
	"encoding/base64"
	"strings"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
)

// forgery is one class of what is not a good grant here. make has the good grant of the
// round that it comes with.
type forgery struct {
	name   string
	reason string // where nothing is signed
	stolen bool   // another caller brings it
	make   func(s *seal, good made) string
}

// forgeries are the classes, each refused for a reason of its own.
var forgeries = []forgery{
	{name: "a key that nobody knows", reason: "UNKNOWN_KEY", make: func(s *seal, g made) string { return signed(s.stranger, "", g.claims) }},
	{name: "a wrong key under the right id", reason: "SIGNATURE", make: func(s *seal, g made) string {
		return parts(g.grant)[0] + "." + parts(g.grant)[1] + "." + parts(signed(s.stranger, "", g.claims))[2]
	}},
	{name: "claims of another grant", reason: "SIGNATURE", make: func(s *seal, g made) string {
		c := g.claims
		c.Fence += 1 << 10
		other := parts(signed(s.signers[0], "", c))
		p := parts(g.grant)
		return p[0] + "." + other[1] + "." + p[2]
	}},
	{name: "a raised number", reason: "SIGNATURE", make: func(_ *seal, g made) string {
		return claimsBut(g.grant, `"fence":`+g.claims.Fence.String(), `"fence":`+(g.claims.Fence+1).String())
	}},
	{name: "another owner written in", reason: "SIGNATURE", make: func(_ *seal, g made) string { return claimsBut(g.grant, g.claims.Owner, "thief") }},
	{name: "another resource written in", reason: "SIGNATURE", make: func(_ *seal, g made) string {
		return claimsBut(g.grant, string(g.claims.Resource), "doc/z")
	}},
	{name: "a seal cut short", reason: "SIGNATURE", make: func(_ *seal, g made) string { return g.grant[:len(g.grant)-2] }},
	{name: "a bit of the seal turned", reason: "SIGNATURE", make: func(_ *seal, g made) string {
		b := []byte(g.grant)
		i := len(b) - 40
		if b[i]++; b[i] > 'z' || b[i] > 'Z' && b[i] < 'a' || b[i] > '9' && b[i] < 'A' {
			b[i] = 'A'
		}
		return string(b)
	}},
	{name: "no seal", reason: "SIGNATURE", make: func(_ *seal, g made) string { return parts(g.grant)[0] + "." + parts(g.grant)[1] + "." }},
	{name: "alg none", reason: "ALGORITHM", make: func(_ *seal, g made) string { return headerBut(g.grant, "EdDSA", "none") }},
	{name: "alg HS256", reason: "ALGORITHM", make: func(_ *seal, g made) string { return headerBut(g.grant, "EdDSA", "HS256") }},
	{name: "a status proof", reason: "TYPE", make: func(s *seal, g made) string {
		proof, err := s.signers[0].SignStatus(grant.StatusClaims{
			Domain: domain, Resource: g.claims.Resource, LeaseID: g.claims.LeaseID, Fence: g.claims.Fence, GrantDigest: g.digest,
			State: lastword.StateHeld, Epoch: g.claims.Fence.Epoch(), Revision: 1, IssuedAt: g.claims.IssuedAt, Expires: g.claims.IssuedAt.Add(time.Second),
		})
		if err != nil {
			return "x.y.z"
		}
		return proof
	}},
	{name: "padded", reason: "ENCODING", make: func(_ *seal, g made) string { return g.grant + "==" }},
	{name: "oversized", reason: "TOO_LARGE", make: func(_ *seal, g made) string { return g.grant + strings.Repeat("A", grant.MaxBytes) }},
	{name: "a segment less", reason: "SEGMENTS", make: func(_ *seal, g made) string { return g.grant[:strings.LastIndexByte(g.grant, '.')] }},
	{name: "a member twice", reason: "DUPLICATE_MEMBER", make: func(_ *seal, g made) string { return claimsBut(g.grant, `"sub":"`, `"sub":"thief","sub":"`) }},
	{name: "a member too many", reason: "UNKNOWN_MEMBER", make: func(_ *seal, g made) string { return claimsBut(g.grant, `"sub":"`, `"admin":"yes","sub":"`) }},
	{name: "not canonical", reason: "NOT_CANONICAL", make: func(_ *seal, g made) string { return claimsBut(g.grant, `,"sub"`, `, "sub"`) }},
	{name: "fence 0", reason: "FENCE_RANGE", make: func(_ *seal, g made) string {
		return claimsBut(g.grant, `"fence":`+g.claims.Fence.String(), `"fence":0`)
	}},
	{name: "fence 2^53", reason: "FENCE_RANGE", make: func(_ *seal, g made) string {
		return claimsBut(g.grant, `"fence":`+g.claims.Fence.String(), `"fence":9007199254740992`)
	}},
	{name: "another domain", reason: "DOMAIN_MISMATCH", make: func(s *seal, g made) string {
		c := g.claims
		c.Domain = "another"
		return signed(s.foreign, "", c)
	}},
	{name: "an epoch that has not begun", reason: "EPOCH_ABOVE_CURRENT", make: func(s *seal, g made) string {
		c := g.claims
		c.Fence, _ = lastword.MakeToken(c.Fence.Epoch()+1000, 1)
		return signed(s.signers[0], "", c)
	}},
	{name: "a grant of another resource", reason: "RESOURCE_MISMATCH", make: func(s *seal, g made) string {
		c := g.claims
		c.Resource = "doc/z"
		return signed(s.signers[0], "", c)
	}},
	{name: "a grant of another owner", reason: "OWNER_MISMATCH", stolen: true, make: func(_ *seal, g made) string { return g.grant }},
	{name: "a grant to register only", reason: "CLASS_MISMATCH", make: func(s *seal, g made) string {
		c := g.claims
		c.Class = lastword.ClassAdvance
		return signed(s.signers[0], "", c)
	}},
	{name: "a policy that is revoked", reason: "POLICY_BELOW_MINIMUM", make: func(s *seal, g made) string {
		c := g.claims
		c.PolicyGeneration = 0
		return signed(s.signers[0], "", c)
	}},
}

func signed(s *grant.Signer, kid string, c grant.Claims) string {
	g, _, err := s.Sign(kid, c)
	if err != nil {
		return "x.y.z"
	}
	return g
}

// parts are header, claims and seal.
func parts(g string) (p [3]string) {
	copy(p[:], strings.SplitN(g, ".", 3))
	return p
}

func claimsBut(g, old, replacement string) string {
	p := parts(g)
	return p[0] + "." + but(p[1], old, replacement) + "." + p[2]
}

func headerBut(g, old, replacement string) string {
	p := parts(g)
	return but(p[0], old, replacement) + "." + p[1] + "." + p[2]
}

func but(segment, old, replacement string) string {
	b, err := base64.RawURLEncoding.DecodeString(segment)
	if err != nil {
		return segment
	}
	return base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(string(b), old, replacement, 1)))
}

// forge sends a message that is not good beside the first write of a round.
func (w *world) forge(o *owner, write *message) {
	class := o.forged
	f := &forgeries[class-1]
	m := w.copy(write)
	m.class, m.op, m.fault = class, junk-1, nil
	m.fence++
	if w.seal != nil {
		m.grant = f.make(w.seal, w.seal.made[o.lease])
	} else if f.stolen {
		m.fence--
	}
	w.forgedBy[class-1].fired++
	w.count.ForgedSent++
	w.note(noteForged, actorForger, o.round, uint64(class), f.name)
	w.later(m, w.now+int64(draw(w.plan.seed, uint64(o.round), 21, 0)>>8)%(2*ms))
}

// forgedRefused notes that a forged message was refused.
func (w *world) forgedRefused(m *message, v lastword.Verdict) {
	w.forgedBy[m.class-1].effect++
	w.note(noteForgedRefused, actorResource, m.round, uint64(m.class), string(v))
	if m.leaked {
		w.effectOf(leakedKey)
	}
}

// leak sends a grant that is signed with the authority's own key and that the authority
// never made: under the number of the present tenure, or far above it (R14a).
func (w *world) leak(o *owner, f *fault) {
	if o.phase != holding {
		return
	}
	m := w.new(doWrite, o)
	m.leaked, m.lease, m.fence, m.gen, m.seq = true, "stolen", o.fence, o.gen, 1
	m.op, m.intent = junk-1, junk
	m.wrong = numberAhead
	m.class = leakedClass
	if w.seal != nil {
		c := w.seal.made[o.lease].claims
		c.LeaseID = m.lease
		if f.arg&1 == 1 {
			c.Fence += 1 << 22
		}
		m.grant, _, _ = w.seal.signers[len(w.seal.signers)-1].Sign(w.signing(), c)
	}
	if f.arg&1 == 1 {
		m.fence += 1 << 22
	}
	w.lanes[o.lane].mistaken = true
	w.later(m, w.now+ms/2)
}

// leakedClass counts as a class of its own.
const leakedClass = 32
