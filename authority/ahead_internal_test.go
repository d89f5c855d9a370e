package authority

import (
	"testing"
	"time"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/grant"
	"github.com/lastword/lastword/internal/core"
)

// R2: a grant that was signed ahead is used for the claims and the key that it was
// signed for, and for no other.
func TestOnlyTheSameClaimsAreTakenAsSigned(t *testing.T) {
	key, err := grant.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	signer, err := grant.NewSigner("d", key)
	if err != nil {
		t.Fatal(err)
	}
	a := &Authority{cfg: Config{Domain: "d"}, signer: signer}
	lease := core.Lease{
		ID: "l", Owner: "o", RequestID: "r", Fence: 41, Class: lastword.ClassWrite, TTL: core.Span(time.Minute),
		GrantedRevision: 7, IssuedAt: 1, KeyID: signer.KeyID(), PolicyGeneration: 1,
	}
	decided := &result{answer: core.Answer{Lease: lease}, record: core.Record{Resource: "doc"}}
	ahead := a.signAhead(decided)
	if ahead == nil {
		t.Fatal("nothing was signed")
	}
	sign := func(change func(c *grant.Claims), key string) (string, error) {
		c := a.claims("doc", lease)
		change(&c)
		signed, digest, err := a.sealWith(ahead)(key, c)
		if err == nil {
			if want, d, _ := signer.Sign(key, c); signed != want || digest != d {
				t.Errorf("another grant came out for %+v", c)
			}
		}
		return signed, err
	}
	if signed, err := sign(func(*grant.Claims) {}, lease.KeyID); err != nil || signed != ahead.grant {
		t.Fatalf("the same grant was not taken, %v", err)
	}
	for name, change := range map[string]func(c *grant.Claims){
		"fence":    func(c *grant.Claims) { c.Fence++ },
		"lease":    func(c *grant.Claims) { c.LeaseID = "m" },
		"revision": func(c *grant.Claims) { c.Revision++ },
		"resource": func(c *grant.Claims) { c.Resource = "other" },
	} {
		if signed, err := sign(change, lease.KeyID); err != nil || signed == ahead.grant {
			t.Errorf("another %s: the grant was taken, %v", name, err)
		}
	}
	if _, err := sign(func(*grant.Claims) {}, "gone"); err == nil {
		t.Error("a key that is gone has a grant")
	}
}
