package grant

import (
	"crypto"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"strconv"

	"github.com/go-jose/go-jose/v4"

	"github.com/lastword/lastword"
)

// Key is a private signing key: Ed25519, or HS256 for one trust zone. No printed,
// logged or marshalled form of it shows more than its id. Copies share one key. The
// zero value is no key, and its ID is "". Safe for concurrent use.
type Key struct{ k *privateKey }

// privateKey holds the secret inside functions, out of the reach of printers that
// follow pointers by reflection.
type privateKey struct {
	id     string
	alg    string
	public ed25519.PublicKey // nil for HS256
	sign   func(message []byte) []byte
	pem    func() ([]byte, error)
}

// check is what a verifier needs of the key. Its epochs are for the bundle to say.
func (k *privateKey) check() *publicKey {
	p := &publicKey{id: k.id, alg: k.alg, ed: k.public}
	if k.alg == algHS256 {
		p.mac = func(message, sig []byte) bool { return hmac.Equal(k.sign(message), sig) }
	}
	return p
}

// NewKey makes an Ed25519 key that lives in this process only.
func NewKey() (Key, error) {
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return Key{}, &lastword.Error{Code: lastword.CodeInternal, Op: "make key", Message: "no randomness", Err: err}
	}
	return makeKey(private)
}

// NewZoneKey makes an HS256 key of 32 random bytes that lives in this process only.
// It is for one trust zone: every verifier needs the key itself
// ([VerifierConfig.OneTrustZone]), and whoever has it can sign. Where resources do
// not trust each other like the authority, use [NewKey].
func NewZoneKey() (Key, error) {
	secret := make([]byte, zoneKeyBytes)
	_, _ = rand.Read(secret) // never fails
	return makeZoneKey(secret), nil
}

const zoneKeyBytes = 32

// makeZoneKey takes 32 random bytes: the id that is made of them gives away nothing.
func makeZoneKey(secret []byte) Key {
	jwk := `{"k":"` + base64.RawURLEncoding.EncodeToString(secret) + `","kty":"oct"}`
	sum := sha256.Sum256([]byte(jwk)) // RFC 7638
	return Key{k: &privateKey{
		id: base64.RawURLEncoding.EncodeToString(sum[:]), alg: algHS256,
		sign: func(message []byte) []byte {
			h := hmac.New(sha256.New, secret)
			h.Write(message)
			return h.Sum(nil)
		},
		pem: func() ([]byte, error) {
			return pem.EncodeToMemory(&pem.Block{Type: zonePEMType, Bytes: secret}), nil
		},
	}}
}

func makeKey(private ed25519.PrivateKey) (Key, error) {
	public, ok := private.Public().(ed25519.PublicKey)
	if !ok {
		return Key{}, &lastword.Error{Code: lastword.CodeInternal, Op: "make key", Message: "the key has no public half"}
	}
	id, err := thumbprint(public)
	if err != nil {
		return Key{}, &lastword.Error{Code: lastword.CodeInternal, Op: "make key", Err: err}
	}
	return Key{k: &privateKey{
		id:     id,
		alg:    algEdDSA,
		public: public,
		sign:   func(message []byte) []byte { return ed25519.Sign(private, message) },
		pem: func() ([]byte, error) {
			der, err := x509.MarshalPKCS8PrivateKey(private)
			if err != nil {
				return nil, err
			}
			return pem.EncodeToMemory(&pem.Block{Type: pemType, Bytes: der}), nil
		},
	}}, nil
}

// parseKey reads what a key file holds. Its errors never quote the file.
func parseKey(b []byte) (Key, error) {
	block, rest := pem.Decode(b)
	switch {
	case block == nil:
		return Key{}, errors.New("it is not PEM")
	case block.Type != pemType && block.Type != zonePEMType:
		return Key{}, fmt.Errorf("it is a PEM block of another type, want %s (PKCS#8)", strconv.Quote(pemType))
	case len(block.Headers) > 0:
		return Key{}, errors.New("its PEM block has headers")
	}
	if next, _ := pem.Decode(rest); next != nil {
		return Key{}, errors.New("it has more than one PEM block")
	}
	if block.Type == zonePEMType {
		if len(block.Bytes) != zoneKeyBytes {
			return Key{}, fmt.Errorf("a zone key has %d bytes", zoneKeyBytes)
		}
		return makeZoneKey(block.Bytes), nil
	}
	private, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return Key{}, errors.New("its content is not a PKCS#8 private key")
	}
	ed, ok := private.(ed25519.PrivateKey)
	if !ok {
		return Key{}, fmt.Errorf("it holds a key of type %T, want an Ed25519 key", private)
	}
	return makeKey(ed)
}

// thumbprint is the RFC 7638 thumbprint of a public key, the kid of every key.
func thumbprint(public ed25519.PublicKey) (string, error) {
	sum, err := (&jose.JSONWebKey{Key: public}).Thumbprint(crypto.SHA256)
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(sum), nil
}

// isThumbprint reports whether id can be one. It is then a safe name of a file, too.
func isThumbprint(id string) bool {
	b, err := base64.RawURLEncoding.Strict().DecodeString(id)
	return err == nil && len(b) == crypto.SHA256.Size() && len(id) == base64.RawURLEncoding.EncodedLen(len(b))
}

// ID is the key's id ("kid"): the RFC 7638 SHA-256 thumbprint of its public half, or
// of the key itself if it is for one trust zone.
func (k Key) ID() string {
	if k.k == nil {
		return ""
	}
	return k.k.id
}

// Algorithm is the only one that the key signs with: EdDSA or HS256.
func (k Key) Algorithm() string {
	if k.k == nil {
		return ""
	}
	return k.k.alg
}

// String names the key by its id.
func (k Key) String() string { return "grant.Key(" + k.ID() + ")" }

// GoString is String.
func (k Key) GoString() string { return k.String() }

// Format prints String under every verb.
func (k Key) Format(s fmt.State, _ rune) { _, _ = s.Write([]byte(k.String())) }

// MarshalJSON is String in quotes. A key cannot be read back from it.
func (k Key) MarshalJSON() ([]byte, error) { return []byte(strconv.Quote(k.String())), nil }

// LogValue is String.
func (k Key) LogValue() slog.Value { return slog.StringValue(k.String()) }
