package grant

import (
	"fmt"
	"time"

	"github.com/lastword/lastword"
)

// The fixed parts of the format.
const (
	// MaxBytes is the largest size of a grant or a status proof, in bytes (T22).
	MaxBytes = 4096
	// Type is the typ of a grant's protected header (RFC 8725).
	Type = "lockgrant.v1+jwt"
	// Version is the version in a grant's claims.
	Version = 1
	// MaxNumber is the largest number in a grant, 2^53 − 1, so that it is exact
	// in every language.
	MaxNumber = uint64(lastword.MaxToken)
	// MaxTTL is the longest TTL that a grant can carry, about 104 days.
	MaxTTL = time.Duration(MaxNumber)

	// algEdDSA is the algorithm of Ed25519 keys (RFC 8037).
	algEdDSA = "EdDSA"
	// algHS256 is the algorithm of keys for one trust zone (RFC 7518).
	algHS256 = "HS256"
	// lastSecond is the end of the year 9999.
	lastSecond = 253402300799
)

// Claims are the fields of a grant (lockGrant.v1, protocol §3). The version and
// the issuer epoch, which is the high bits of the fence, are derived. The zero
// value is no grant: everything but Revision, PolicyGeneration and Root must be
// there.
type Claims struct {
	Domain           string
	Resource         lastword.Resource
	Owner            string
	RequestID        string
	LeaseID          string
	Fence            lastword.Token
	Revision         uint64          // of the store when the fence was granted, at most MaxNumber
	PolicyGeneration uint64          // at most MaxNumber
	Root             lastword.Digest // operation root, or none
	Class            lastword.Class  // never ""
	TTL              time.Duration   // granted, 1 ns to MaxTTL
	IssuedAt         time.Time       // whole seconds from 1970 to 9999; for people, no rule reads it
}

// Epoch is the issuer epoch of the fence.
func (c Claims) Epoch() uint32 { return c.Fence.Epoch() }

// check reports the first field that no grant can carry.
func (c *Claims) check() error {
	if err := c.checkIDs(); err != nil {
		return err
	}
	seconds := c.IssuedAt.Unix()
	switch {
	case !c.Fence.Valid():
		return fmt.Errorf("fence %d is not from 1 to %d", uint64(c.Fence), lastword.MaxToken)
	case c.Revision > MaxNumber:
		return fmt.Errorf("revision %d is above %d", c.Revision, MaxNumber)
	case c.PolicyGeneration > MaxNumber:
		return fmt.Errorf("policy generation %d is above %d", c.PolicyGeneration, MaxNumber)
	case c.TTL <= 0 || c.TTL > MaxTTL:
		return fmt.Errorf("ttl %v is not from 1ns to %v", c.TTL, MaxTTL)
	case seconds < 0 || seconds > lastSecond || c.IssuedAt.Nanosecond() != 0:
		return fmt.Errorf("issued-at %v is not a whole second from 1970 to 9999", c.IssuedAt)
	}
	return nil
}

func (c *Claims) checkIDs() error {
	if _, err := lastword.ParseResource(string(c.Resource)); err != nil {
		return err
	}
	if err := lastword.CheckID("domain", c.Domain); err != nil {
		return err
	}
	if err := lastword.CheckID("owner", c.Owner); err != nil {
		return err
	}
	if err := lastword.CheckID("request id", c.RequestID); err != nil {
		return err
	}
	if err := lastword.CheckID("lease id", c.LeaseID); err != nil {
		return err
	}
	return lastword.CheckID("class", string(c.Class))
}
