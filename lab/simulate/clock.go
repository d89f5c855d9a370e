package simulate

// clock is a party's own elapsed time: it may run fast or slow, stand still while the
// party does, or jump.
type clock struct {
	from    int64 // true time
	base    int64 // what the clock showed then
	ppm     int64 // how much it runs fast, parts per million
	stopped bool
}

func (c *clock) read(now int64) int64 {
	if c.stopped {
		return c.base
	}
	d := now - c.from
	return c.base + d + d/1000*c.ppm/1000
}

// set lets the clock go on from what it shows now, at another rate or not at all.
func (c *clock) set(now, ppm int64, stopped bool) {
	c.base = c.read(now)
	c.from, c.ppm, c.stopped = now, ppm, stopped
}

// jump moves the clock.
func (c *clock) jump(now, by int64) {
	c.set(now, c.ppm, c.stopped)
	c.base += by
}

// when is the true time at which the clock shows at, or a little later. Of one that
// stands still it is never.
func (c *clock) when(now, at int64) int64 {
	left := at - c.read(now)
	if left <= 0 {
		return now
	}
	return now + left - left/1000*c.ppm/1000 + left>>16 + 1
}
