package client

// Leases is how many leases c would release.
func Leases(c *Client) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.leases)
}
