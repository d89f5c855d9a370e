package grant

import (
	"encoding/base64"
	"encoding/hex"
	"strconv"

	"github.com/lastword/lastword"
)

// Header and claims are written here and nowhere else: canonical JSON (RFC 8785),
// which for these members means sorted names, no white space, plain decimal
// numbers, and strings in which only the quote and the backslash are escaped
// (control characters cannot occur). Parsing accepts exactly what this writes.

func appendHeader(dst []byte, alg, kid, typ string) []byte {
	dst = appendString(append(dst, `{"alg":`...), alg)
	dst = appendString(append(dst, `,"kid":`...), kid)
	dst = appendString(append(dst, `,"typ":`...), typ)
	return append(dst, '}')
}

// appendClaims takes version and epoch apart from c, so that a parsed grant can
// be written again as it was.
func appendClaims(dst []byte, c *Claims, version, epoch uint64) []byte {
	dst = appendString(append(dst, `{"class":`...), string(c.Class))
	dst = appendNumber(append(dst, `,"epoch":`...), epoch)
	dst = appendNumber(append(dst, `,"fence":`...), uint64(c.Fence))
	dst = appendNumber(append(dst, `,"iat":`...), uint64(c.IssuedAt.Unix()))
	dst = appendString(append(dst, `,"iss":`...), c.Domain)
	dst = appendString(append(dst, `,"jti":`...), c.LeaseID)
	dst = appendNumber(append(dst, `,"policy":`...), c.PolicyGeneration)
	dst = appendString(append(dst, `,"request":`...), c.RequestID)
	dst = appendString(append(dst, `,"resource":`...), string(c.Resource))
	dst = appendNumber(append(dst, `,"revision":`...), c.Revision)
	dst = appendDigest(append(dst, `,"root":`...), c.Root)
	dst = appendString(append(dst, `,"sub":`...), c.Owner)
	dst = appendNumber(append(dst, `,"ttl_ns":`...), uint64(c.TTL))
	dst = appendNumber(append(dst, `,"version":`...), version)
	return append(dst, '}')
}

func appendNumber(dst []byte, n uint64) []byte { return strconv.AppendUint(dst, n, 10) }

func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			dst = append(dst, '\\')
		}
		dst = append(dst, s[i])
	}
	return append(dst, '"')
}

func appendDigest(dst []byte, d lastword.Digest) []byte {
	if d.IsZero() {
		return append(dst, `""`...)
	}
	dst = append(dst, `"sha256:`...)
	return append(hex.AppendEncode(dst, d[:]), '"')
}

// signingInput is the two signed segments of a grant, with the dot between them
// (RFC 7515, section 5.1). Its SHA-256 is the digest of the grant.
func signingInput(k Key, c *Claims) []byte {
	var payload [1024]byte
	return joined(k, Type, appendClaims(payload[:0], c, Version, uint64(c.Epoch())))
}

// joined is the header of k and typ, a dot, and p, with room for the signature.
func joined(k Key, typ string, p []byte) []byte {
	var header [160]byte
	h := appendHeader(header[:0], k.k.alg, k.k.id, typ)
	dst := make([]byte, 0, base64.RawURLEncoding.EncodedLen(len(h))+1+
		base64.RawURLEncoding.EncodedLen(len(p))+1+sealLen)
	dst = base64.RawURLEncoding.AppendEncode(dst, h)
	dst = append(dst, '.')
	return base64.RawURLEncoding.AppendEncode(dst, p)
}
