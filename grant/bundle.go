package grant

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json" // refuses duplicate members, heeds case (T7)

	"github.com/lastword/lastword"
)

const (
	// MaxBundleBytes is the largest size of a marshalled trust bundle (T22).
	MaxBundleBytes = 64 << 10
	// maxKeys is the largest number of keys in a bundle.
	maxKeys = 64
	// maxBundleDepth is how deep a bundle may be nested; ours needs three.
	maxBundleDepth = 4
)

// BundleInfo is what a trust bundle says beside its keys.
type BundleInfo struct {
	// Sequence grows whenever anything else of the bundle changes; a verifier
	// refuses another bundle under the same sequence, and every lower one. At most
	// [MaxNumber].
	Sequence uint64
	// CurrentEpoch is the issuer epoch that signs at present.
	CurrentEpoch uint32
	// MinimumEpoch is the lowest issuer epoch that is not revoked, at most the
	// current one.
	MinimumEpoch uint32
	// RefreshHint is how often to ask for the bundle, whole seconds; 0 says nothing.
	RefreshHint time.Duration
	// Epochs bounds the issuer epochs of single keys, by key id. A key that is not
	// in it may sign for every epoch.
	Epochs map[string]EpochRange
}

// EpochRange is the range of issuer epochs that a key may sign for, both ends
// included. The zero value bounds nothing.
type EpochRange struct {
	First uint32
	Last  *uint32 // nil until the key is retired
}

func (r EpochRange) holds(epoch uint32) bool {
	return epoch >= r.First && (r.Last == nil || epoch <= *r.Last)
}

// Bundle is a trust bundle: the keys to believe, and for which issuer epochs. It is
// immutable, and copies are cheap. The zero value is no bundle; a verifier refuses
// it.
type Bundle struct{ d *bundleData }

type bundleData struct {
	domain      string
	sequence    uint64
	current     uint32
	minimum     uint32
	refreshHint time.Duration
	keys        []publicKey
	raw         []byte // marshalled
}

// publicKey is a key of the bundle. alg is fixed here, never by a message (T8). Of a
// key for one trust zone the bundle has id and epochs only; mac is set by a verifier
// that was given the key.
type publicKey struct {
	id     string
	alg    string
	ed     ed25519.PublicKey
	mac    func(message, sig []byte) bool
	epochs EpochRange
}

func (k *publicKey) verifies(message, sig []byte) bool {
	if k.alg == algHS256 {
		return k.mac != nil && k.mac(message, sig)
	}
	return len(sig) == ed25519.SignatureSize && ed25519.Verify(k.ed, message, sig)
}

// Domain is the domain whose grants the bundle is for.
func (b Bundle) Domain() string { return b.data().domain }

// Sequence only grows.
func (b Bundle) Sequence() uint64 { return b.data().sequence }

// CurrentEpoch is the issuer epoch that signs at present.
func (b Bundle) CurrentEpoch() uint32 { return b.data().current }

// MinimumEpoch is the lowest issuer epoch that is not revoked.
func (b Bundle) MinimumEpoch() uint32 { return b.data().minimum }

// RefreshHint is how often to ask for the bundle; 0 if it does not say.
func (b Bundle) RefreshHint() time.Duration { return b.data().refreshHint }

func (b Bundle) data() *bundleData {
	if b.d == nil {
		return &bundleData{}
	}
	return b.d
}

// Marshal is the bundle as JSON, in the shape of a SPIFFE bundle: a JWK set with
// members of its own. Equal bundles give equal bytes. The zero value fails with
// [lastword.CodeInvalid].
func (b Bundle) Marshal() ([]byte, error) {
	if b.d == nil {
		return nil, invalid("marshal bundle", "", errors.New("it is the zero value"))
	}
	return bytes.Clone(b.d.raw), nil
}

// wireBundle is the JSON of a bundle.
type wireBundle struct {
	Domain       *string           `json:"lastword_domain"`
	Sequence     *uint64           `json:"spiffe_sequence"`
	CurrentEpoch *uint32           `json:"lastword_current_epoch"`
	MinimumEpoch *uint32           `json:"lastword_minimum_epoch"`
	RefreshHint  int64             `json:"spiffe_refresh_hint,omitempty"` // seconds
	ZoneKeys     []wireZoneKey     `json:"lastword_zone_keys,omitempty"`
	Keys         []json.RawMessage `json:"keys"`
}

// wireZoneKey names a key for one trust zone. Only who was given the key by hand can
// use the name.
type wireZoneKey struct {
	ID    string           `json:"kid"`
	Alg   string           `json:"alg"`
	First uint32           `json:"lastword_first_epoch"`
	Last  *uint32          `json:"lastword_last_epoch,omitempty"`
	K     *json.RawMessage `json:"k,omitempty"`
}

// wireKey is what a bundle's key has beside the members of the JWK, and the
// members that must not be there.
type wireKey struct {
	Type    string           `json:"kty"`
	Curve   string           `json:"crv"`
	First   uint32           `json:"lastword_first_epoch"`
	Last    *uint32          `json:"lastword_last_epoch"`
	Private *json.RawMessage `json:"d"`
}

// newBundle checks and marshals data.
func newBundle(op string, data bundleData) (Bundle, error) {
	if err := data.check(); err != nil {
		return Bundle{}, invalid(op, "", err)
	}
	raw, err := data.marshal()
	if err != nil {
		return Bundle{}, &lastword.Error{Code: lastword.CodeInternal, Op: op, Err: err}
	}
	if len(raw) > MaxBundleBytes {
		return Bundle{}, invalid(op, "", fmt.Errorf("it has %d bytes, more than %d", len(raw), MaxBundleBytes))
	}
	data.raw = raw
	return Bundle{d: &data}, nil
}

func (d *bundleData) check() error {
	if err := lastword.CheckID("domain", d.domain); err != nil {
		return err
	}
	switch {
	case d.sequence > MaxNumber:
		return fmt.Errorf("sequence %d is above %d", d.sequence, MaxNumber)
	case d.current > lastword.MaxEpoch:
		return fmt.Errorf("current epoch %d is above %d", d.current, lastword.MaxEpoch)
	case d.minimum > d.current:
		return fmt.Errorf("minimum epoch %d is above the current epoch %d", d.minimum, d.current)
	case d.refreshHint < 0 || d.refreshHint%time.Second != 0:
		return fmt.Errorf("refresh hint %v is not a number of whole seconds", d.refreshHint)
	case len(d.keys) > maxKeys:
		return fmt.Errorf("%d keys are more than %d", len(d.keys), maxKeys)
	}
	for i, k := range d.keys {
		if slices.ContainsFunc(d.keys[:i], func(o publicKey) bool { return o.id == k.id }) {
			return fmt.Errorf("key %s is there twice", k.id)
		}
		if k.epochs.Last != nil && *k.epochs.Last < k.epochs.First {
			return fmt.Errorf("key %s has last epoch %d before its first %d", k.id, *k.epochs.Last, k.epochs.First)
		}
	}
	return nil
}

func (d *bundleData) marshal() ([]byte, error) {
	w := wireBundle{
		Domain: &d.domain, Sequence: &d.sequence, CurrentEpoch: &d.current, MinimumEpoch: &d.minimum,
		RefreshHint: int64(d.refreshHint / time.Second), Keys: []json.RawMessage{},
	}
	for _, k := range d.keys {
		if k.alg == algHS256 {
			w.ZoneKeys = append(w.ZoneKeys, wireZoneKey{ID: k.id, Alg: k.alg, First: k.epochs.First, Last: k.epochs.Last})
			continue
		}
		b, err := k.marshal()
		if err != nil {
			return nil, err
		}
		w.Keys = append(w.Keys, b)
	}
	return json.Marshal(w)
}

// marshal is the JWK with our two members beside it, names sorted.
func (k *publicKey) marshal() (json.RawMessage, error) {
	b, err := jose.JSONWebKey{Key: k.ed, KeyID: k.id, Algorithm: k.alg, Use: "sig"}.MarshalJSON()
	if err != nil {
		return nil, err
	}
	members := map[string]any{}
	if err := json.Unmarshal(b, &members); err != nil {
		return nil, err
	}
	members["lastword_first_epoch"] = k.epochs.First
	if k.epochs.Last != nil {
		members["lastword_last_epoch"] = *k.epochs.Last
	}
	return json.Marshal(members)
}

// ParseBundle reads a marshalled bundle. Members and kinds of keys that it does not
// know are ignored, as RFC 7517 wants it; what it does know must be there once and
// right. It refuses private and symmetric keys and a key whose id is not its RFC
// 7638 thumbprint. Errors have [lastword.CodeInvalid].
func ParseBundle(b []byte) (Bundle, error) {
	const op = "parse bundle"
	if len(b) > MaxBundleBytes {
		return Bundle{}, invalid(op, "", fmt.Errorf("it has %d bytes, more than %d", len(b), MaxBundleBytes))
	}
	if tooDeep(b, maxBundleDepth) {
		return Bundle{}, invalid(op, "", errors.New("it is nested too deep"))
	}
	var w wireBundle
	if err := json.Unmarshal(b, &w); err != nil {
		return Bundle{}, invalid(op, "", fmt.Errorf("it is not the JSON of a trust bundle: %w", err))
	}
	if w.Domain == nil || w.Sequence == nil || w.CurrentEpoch == nil || w.MinimumEpoch == nil || w.Keys == nil {
		return Bundle{}, invalid(op, "", errors.New(
			"it lacks one of lastword_domain, spiffe_sequence, lastword_current_epoch, lastword_minimum_epoch, keys"))
	}
	const maxHint = int64(1<<63-1) / int64(time.Second)
	if w.RefreshHint < 0 || w.RefreshHint > maxHint {
		return Bundle{}, invalid(op, "", errors.New("its spiffe_refresh_hint is out of range"))
	}
	data := bundleData{
		domain: *w.Domain, sequence: *w.Sequence, current: *w.CurrentEpoch, minimum: *w.MinimumEpoch,
		refreshHint: time.Duration(w.RefreshHint) * time.Second,
	}
	for i, z := range w.ZoneKeys {
		switch {
		case z.K != nil:
			return Bundle{}, invalid(op, "", errors.New("a symmetric key does not belong in a trust bundle: who has it can forge"))
		case z.Alg != algHS256 || !isThumbprint(z.ID):
			return Bundle{}, invalid(op, "", fmt.Errorf("zone key %d: want alg %s and a thumbprint as kid", i, algHS256))
		}
		data.keys = append(data.keys, publicKey{id: z.ID, alg: algHS256, epochs: EpochRange{First: z.First, Last: z.Last}})
	}
	for i, raw := range w.Keys {
		k, known, err := parsePublicKey(raw)
		if err != nil {
			return Bundle{}, invalid(op, "", fmt.Errorf("key %d: %w", i, err))
		}
		if known {
			data.keys = append(data.keys, k)
		}
	}
	return newBundle(op, data)
}

// parsePublicKey reads one JWK. known is false for a kind that this version does
// not use: grants of such a key are of an unknown key.
func parsePublicKey(raw json.RawMessage) (k publicKey, known bool, err error) {
	var w wireKey
	if err := json.Unmarshal(raw, &w); err != nil {
		return publicKey{}, false, errors.New("it is not the JSON of a key")
	}
	switch {
	case w.Type == "oct":
		return publicKey{}, false, errors.New("a symmetric key does not belong in a trust bundle: who has it can forge")
	case w.Private != nil:
		return publicKey{}, false, errors.New("a private key does not belong in a trust bundle: replace that key")
	case w.Type != "OKP" || w.Curve != "Ed25519":
		return publicKey{}, false, nil
	}
	var j jose.JSONWebKey
	if err := j.UnmarshalJSON(raw); err != nil {
		return publicKey{}, false, errors.New("it is not an Ed25519 public key")
	}
	public, ok := j.Key.(ed25519.PublicKey)
	if !ok || len(public) != ed25519.PublicKeySize || j.Algorithm != algEdDSA {
		return publicKey{}, false, errors.New("an Ed25519 key must have 32 bytes and alg EdDSA")
	}
	id, err := thumbprint(public)
	if err != nil || id != j.KeyID {
		return publicKey{}, false, errors.New("its kid is not its RFC 7638 thumbprint")
	}
	return publicKey{id: id, alg: algEdDSA, ed: public, epochs: EpochRange{First: w.First, Last: w.Last}}, true, nil
}

// tooDeep reports whether brackets outside strings are nested deeper than limit.
func tooDeep(b []byte, limit int) bool {
	depth, quoted := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > limit {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

// BundleSource gives the trust bundle. It answers from memory unless refresh is
// set, which asks where the bundle comes from; a verifier does that when a grant
// is ahead of the bundle, one call at a time. A source over a network bounds how
// often it asks, and fails when its bundle is older than its limit (R13). It must
// be safe for concurrent use.
type BundleSource interface {
	Bundle(ctx context.Context, refresh bool) (Bundle, error)
}

// StaticBundle is a source that always gives b.
func StaticBundle(b Bundle) BundleSource { return staticBundle{b} }

type staticBundle struct{ b Bundle }

func (s staticBundle) Bundle(context.Context, bool) (Bundle, error) { return s.b, nil }
