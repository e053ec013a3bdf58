package leaseway

import "time"

// WithClock sets the clock of a balancer.
func WithClock(now func() time.Time) BalancerOption {
	return balancerOption(func(s *balancerSettings) { s.now = now })
}

// RenewalStream returns the number of the stream on which leases are renewed at present, or 0.
func (c *Client) RenewalStream() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session.Stream()
}
