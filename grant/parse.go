package grant

import (
	"bytes"
	"encoding/base64"
	"strings"
	"time"

	"github.com/lastword/lastword"
)

// sealed is the part that grants and status proofs share. Nobody vouches for it yet.
type sealed struct {
	alg    string
	kid    string
	signed []byte // the signing input
	sig    []byte // as long as it came

	domain string
	epoch  uint64
	odd    bool // the epoch contradicts the fence
}

// parsed is a grant that has the right shape, type and version.
type parsed struct {
	sealed
	claims Claims
}

const (
	maxSegment = MaxBytes * 3 / 4
	// sealLen is the longest signature segment, that of an Ed25519 key.
	sealLen = 86
)

var headerMembers = []member{{name: "alg"}, {name: "kid"}, {name: "typ"}}

// claimMembers are the members of the claims in the order of [appendClaims].
var claimMembers = []member{
	{name: "class"},
	{name: "epoch", number: true},
	{name: "fence", number: true},
	{name: "iat", number: true},
	{name: "iss"},
	{name: "jti"},
	{name: "policy", number: true},
	{name: "request"},
	{name: "resource"},
	{name: "revision", number: true},
	{name: "root"},
	{name: "sub"},
	{name: "ttl_ns", number: true},
	{name: "version", number: true},
}

// parse is the part of R12 that needs no trust: size and shape, then type and
// version. What it accepts is byte for byte what the signer writes.
func parse(grant string) (*parsed, *Refusal) {
	var buf [maxSegment]byte
	p := &parsed{}
	payload, why := p.unpack(grant, Type, &buf)
	if why == nil {
		why = p.readClaims(payload)
	}
	if why != nil {
		return nil, why
	}
	return p, nil
}

// unpack reads everything but the claims, which it only decodes, into buf.
func (s *sealed) unpack(token, typ string, buf *[maxSegment]byte) (payload []byte, why *Refusal) {
	if len(token) > MaxBytes {
		return nil, &Refusal{Reason: ReasonTooLarge}
	}
	// Counted before anything is split: a split of many dots is memory that the
	// sender chooses.
	if strings.Count(token, ".") != 2 {
		return nil, &Refusal{Reason: ReasonSegments}
	}
	raw := []byte(token)
	first, last := strings.IndexByte(token, '.'), strings.LastIndexByte(token, '.')
	s.signed = raw[:last]
	seal, why := decodeSegment(buf[:0], raw[last+1:])
	if why != nil {
		return nil, why
	}
	s.sig = bytes.Clone(seal)
	header, why := decodeSegment(buf[:0], raw[:first])
	if why == nil {
		why = s.readHeader(header, typ)
	}
	if why != nil {
		return nil, why
	}
	return decodeSegment(buf[:0], raw[first+1:last])
}

// decodeSegment decodes strict base64url. The decoder of the standard library
// skips line breaks, which the length then shows.
func decodeSegment(dst, segment []byte) ([]byte, *Refusal) {
	dst, err := base64.RawURLEncoding.Strict().AppendDecode(dst, segment)
	if err != nil || base64.RawURLEncoding.EncodedLen(len(dst)) != len(segment) {
		return nil, &Refusal{Reason: ReasonEncoding}
	}
	return dst, nil
}

func (s *sealed) readHeader(in []byte, typ string) *Refusal {
	var got [3]value
	if why := scanObject(string(in), headerMembers, got[:]); why != nil {
		return why
	}
	s.alg, s.kid = got[0].text, got[1].text
	var again [256]byte
	if !bytes.Equal(appendHeader(again[:0], s.alg, s.kid, got[2].text), in) {
		return &Refusal{Reason: ReasonNotCanonical}
	}
	if got[2].text != typ {
		return &Refusal{Reason: ReasonType}
	}
	return nil
}

func (p *parsed) readClaims(in []byte) *Refusal {
	var got [14]value
	if why := scanObject(string(in), claimMembers, got[:]); why != nil {
		return why
	}
	if got[13].num != Version {
		return &Refusal{Reason: ReasonVersion}
	}
	if !lastword.Token(got[2].num).Valid() {
		return &Refusal{Reason: ReasonFenceRange}
	}
	for i := range got {
		if got[i].num > MaxNumber {
			return &Refusal{Reason: ReasonNumber}
		}
	}
	p.epoch = got[1].num
	if why := p.fillClaims(&got); why != nil {
		return why
	}
	var again [1024]byte
	if !bytes.Equal(appendClaims(again[:0], &p.claims, got[13].num, p.epoch), in) {
		return &Refusal{Reason: ReasonNotCanonical}
	}
	p.domain, p.odd = p.claims.Domain, p.epoch != uint64(p.claims.Epoch())
	return nil
}

func (p *parsed) fillClaims(got *[14]value) *Refusal {
	var root lastword.Digest
	if text := got[10].text; text != "" {
		d, err := lastword.ParseDigest(text)
		if err != nil {
			return &Refusal{Reason: ReasonValue}
		}
		root = d
	}
	p.claims = Claims{
		Class:            lastword.Class(got[0].text),
		Fence:            lastword.Token(got[2].num),
		IssuedAt:         time.Unix(int64(got[3].num), 0).UTC(),
		Domain:           got[4].text,
		LeaseID:          got[5].text,
		PolicyGeneration: got[6].num,
		RequestID:        got[7].text,
		Resource:         lastword.Resource(got[8].text),
		Revision:         got[9].num,
		Root:             root,
		Owner:            got[11].text,
		TTL:              time.Duration(got[12].num),
	}
	if p.claims.check() != nil {
		return &Refusal{Reason: ReasonValue}
	}
	return nil
}

// Unverified is what a grant says about itself. Nobody vouches for it: it is for
// people to look at, never to decide with.
type Unverified struct {
	Claims    Claims
	KeyID     string
	Algorithm string
	Type      string
	Digest    lastword.Digest
}

// Inspect reads a grant as strictly as [Verifier.Open] does, without a trust
// bundle and without checking the signature. It fails with UNVERIFIED and a
// [Refusal] if the grant has not the right shape, type or version.
func Inspect(grant string) (Unverified, error) {
	p, why := parse(grant)
	if why != nil {
		return Unverified{}, refused("inspect grant", "", why)
	}
	return Unverified{
		Claims: p.claims, KeyID: p.kid, Algorithm: p.alg, Type: Type,
		Digest: lastword.DigestOf(p.signed),
	}, nil
}
