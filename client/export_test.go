package client

import "time"

// Leases is how many leases c would release.
func Leases(c *Client) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.leases)
}

// Planned is how many leases c would wake, and whether it has a timer.
func Planned(c *Client) (int, bool) {
	c.agenda.mu.Lock()
	defer c.agenda.mu.Unlock()
	return len(c.agenda.leases), c.agenda.timer != nil
}

// LocalDeadline is when trust in l ends, or would have ended.
func LocalDeadline(l *Lease) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Duration(l.trust.Until)
}

// Claims is how many request ids c has in use.
func Claims(c *Client) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.claims)
}
