package lastword

import (
	"fmt"
	"strconv"
)

// Limits of a [Token] and of its two parts.
const (
	// MaxToken is 2^53 − 1, so that a token is exact in every database, in Lua
	// and in JavaScript.
	MaxToken Token = 1<<53 - 1
	// MaxEpoch is the last issuer epoch of a domain (20 bits).
	MaxEpoch uint32 = 1<<20 - 1
	// MaxCounter is the last counter of a resource inside one epoch (33 bits).
	MaxCounter uint64 = 1<<33 - 1

	counterBits = 33
)

// Token is a fencing token ("fence"): an ordered number from 1 to [MaxToken].
// The high 20 bits are the issuer epoch (the first is 0), the low 33 bits the
// counter of the resource inside that epoch (the first is 1), so a new epoch
// outranks everything granted before it. 0 is "no fence" and is refused
// everywhere. Tokens of two domains, or of two resources, are never compared.
type Token uint64

// MakeToken builds the token of an epoch and a counter. It fails with
// [CodeInvalid] when either is out of range.
func MakeToken(epoch uint32, counter uint64) (Token, error) {
	if epoch > MaxEpoch || counter == 0 || counter > MaxCounter {
		return 0, &Error{Code: CodeInvalid, Message: fmt.Sprintf("epoch %d with counter %d is no fence", epoch, counter)}
	}
	return Token(uint64(epoch)<<counterBits | counter), nil
}

// ParseToken reads a token in its only spelling: decimal digits without sign,
// leading zero, fraction or exponent, 1 to [MaxToken]. Anything else is
// [CodeInvalid].
func ParseToken(s string) (Token, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	t := Token(n)
	if err != nil || !t.Valid() || s != t.String() {
		return 0, &Error{Code: CodeInvalid, Message: fmt.Sprintf("fence %q: want a decimal number from 1 to %d", clip(s), MaxToken)}
	}
	return t, nil
}

// Valid reports whether t is in range. (The counter part is not looked at: an
// imported token, R14b, has no such part.)
func (t Token) Valid() bool { return t >= 1 && t <= MaxToken }

// Epoch is the issuer epoch of t.
func (t Token) Epoch() uint32 { return uint32(t >> counterBits) }

// Counter is the resource's counter inside the epoch of t.
func (t Token) Counter() uint64 { return uint64(t) & MaxCounter }

// String is the decimal number, the spelling of every machine interface.
func (t Token) String() string { return strconv.FormatUint(uint64(t), 10) }

// Text is for people: the decimal number and "epoch.counter" behind it.
func (t Token) Text() string { return fmt.Sprintf("%d (%d.%d)", uint64(t), t.Epoch(), t.Counter()) }

func clip(s string) string {
	const shown = 40
	if len(s) > shown {
		return s[:shown] + "…"
	}
	return s
}
