package core

// IssueTime is the time in an operation id that carries one, in milliseconds since
// 1970: a UUID of version 7 (RFC 9562, in its usual spelling with hyphens) or a ULID in
// capital letters. false: the id carries none.
func IssueTime(operation string) (ms uint64, ok bool) {
	switch len(operation) {
	case 36:
		return uuidTime(operation)
	case 26:
		return ulidTime(operation)
	}
	return 0, false
}

// Pruned reports whether the receipt of an operation may be gone because receipts were
// pruned up to mark, in milliseconds since 1970 (R19): no clock is asked. It is told
// after a look that found none. 0 is no mark. An id without an issue time is pruned
// only with a tombstone.
func Pruned(operation string, mark uint64) bool {
	issued, ok := IssueTime(operation)
	return mark > 0 && ok && issued <= mark
}

func uuidTime(s string) (ms uint64, ok bool) {
	digits := 0
	for i := range len(s) {
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if s[i] != '-' {
				return 0, false
			}
			continue
		}
		v, ok := hex(s[i])
		if !ok {
			return 0, false
		}
		if digits++; digits <= 12 { // 48 bits
			ms = ms<<4 | v
		}
	}
	variant, _ := hex(s[19])
	return ms, s[14] == '7' && variant&0b1100 == 0b1000
}

func hex(c byte) (v uint64, ok bool) {
	switch {
	case c >= '0' && c <= '9':
		return uint64(c - '0'), true
	case c >= 'a' && c <= 'f':
		return uint64(c-'a') + 10, true
	case c >= 'A' && c <= 'F':
		return uint64(c-'A') + 10, true
	}
	return 0, false
}

func ulidTime(s string) (ms uint64, ok bool) {
	const alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	var values [256]uint8 // index in the alphabet and 1
	for i := range len(alphabet) {
		values[alphabet[i]] = uint8(i + 1)
	}
	for i := range len(s) {
		v := values[s[i]]
		if v == 0 {
			return 0, false
		}
		if i < 10 { // 50 bits, of which the first two are 0
			ms = ms<<5 | uint64(v-1)
		}
	}
	return ms, s[0] <= '7'
}
