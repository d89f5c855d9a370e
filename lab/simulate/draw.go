package simulate

// mix is a bijection of 64 bits in which every bit depends on every other one.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// draw is a number that depends on a seed and on what it is drawn for, and on nothing
// that was drawn before: a plan with something left out draws the rest as before.
func draw(seed, a, b, c uint64) uint64 {
	const golden = 0x9e3779b97f4a7c15
	x := mix(seed + golden*(a+1))
	x = mix(x + golden*(b+1))
	return mix(x + golden*(c+1))
}

// stream is a row of numbers, for the drawing of a plan as a whole.
type stream struct{ state uint64 }

func (s *stream) next() uint64 {
	s.state += 0x9e3779b97f4a7c15
	return mix(s.state)
}

// below is a number from 0 to n − 1.
func (s *stream) below(n int) int { return int(s.next() >> 33 % uint64(n)) }

// between is a length of time from a to b.
func (s *stream) between(a, b int64) int64 { return a + int64(s.next()>>1)%(b-a+1) }

// chance reports true in so many of a thousand cases.
func (s *stream) chance(thousandths int) bool { return s.below(1000) < thousandths }
