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

// Hold holds the lock of the client until release is called, so that a close begins and does not end.
func (c *Client) Hold() (release func()) {
	c.mu.Lock()
	return c.mu.Unlock
}

// IsUnreferenced returns whether the last handle, permit or reservation is gone.
func (r *Resource) IsUnreferenced() bool { return r.opened.refs.Load() <= 0 }

// Taken returns the permits taken and not returned so far.
func (r *Rate) Taken() uint64 { return r.limiter.Taken() }
