package leaseway

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/leaseway/leaseway/src/go/internal/session"
)

// counters count events since the client was created.
type counters struct {
	requests, requestErrors, redirects, hints, leasesEnded, leftOut, uncharged atomic.Uint64
}

// Stats is a snapshot of the counters of a client and the state of its resources. It is cheap enough to be taken by a
// metrics collector whenever it is scraped.
type Stats struct {
	// Requests and RequestErrors count requests to servers. A redirect is no error.
	Requests      uint64
	RequestErrors uint64
	// Redirects counts answers of servers that are not the master.
	Redirects uint64
	// Hints counts hints of servers that asking at once would change a lease.
	Hints uint64
	// LeasesEnded counts leases that have expired unrenewed.
	LeasesEnded uint64
	// LeftOut counts resources that servers left out of their answers.
	LeftOut uint64
	// Uncharged counts permits that were not charged because the maximum debt was reached.
	Uncharged uint64
	// Resources has the open resources by name, in ascending order.
	Resources []ResourceStats
}

// ResourceStats is the state of an open resource.
type ResourceStats struct {
	Name string
	// Kind is that of a [KindError], such as "rate".
	Kind string
	// Capacity may be used now.
	Capacity float64
	Basis    Basis
	// LeaseLeft is the time until the lease expires; 0 without a live lease.
	LeaseLeft time.Duration
	// Wants is the demand that was computed last.
	Wants float64
	// Arrived counts permits requested so far, and Taken those that were taken and not returned. For rates and gauges.
	Arrived uint64
	Taken   uint64
	// Waiting has the permits that callers wait for now.
	Waiting uint64
	// InUse has the permits of a gauge in use.
	InUse uint64
	// Debt has the debt of a rate in permits.
	Debt uint64
	// Budget is nil for other kinds.
	Budget *BudgetStats
}

// BudgetStats is the state of a budget, in amounts.
type BudgetStats struct {
	// Spent has what this client has spent in the current period, and Left what remains of its allowance.
	Spent float64
	Left  float64
	// Owed has the unpaid debt.
	Owed float64
	// Waiting has what callers wait for now.
	Waiting float64
}

// Stats returns a snapshot of counters and resources.
func (c *Client) Stats() Stats {
	stats := Stats{
		Requests:      c.stats.requests.Load(),
		RequestErrors: c.stats.requestErrors.Load(),
		Redirects:     c.stats.redirects.Load(),
		Hints:         c.stats.hints.Load(),
		LeasesEnded:   c.stats.leasesEnded.Load(),
		LeftOut:       c.stats.leftOut.Load(),
		Uncharged:     c.stats.uncharged.Load(),
	}
	c.mu.Lock()
	now, _ := c.clock.Now()
	all := make([]*sharedResource, 0, len(c.opened))
	for _, o := range c.opened {
		all = append(all, o)
	}
	c.mu.Unlock()
	for _, o := range all {
		stats.Resources = append(stats.Resources, o.stats(now))
	}
	slices.SortFunc(stats.Resources, func(a, b ResourceStats) int { return strings.Compare(a.Name, b.Name) })
	return stats
}

func (o *sharedResource) stats(now time.Duration) ResourceStats {
	usable, _, _ := o.current()
	stats := ResourceStats{Name: o.id, Kind: o.kind, Capacity: usable.Capacity, Basis: Basis(usable.Basis)}
	if usable.Basis == session.Leased {
		stats.LeaseLeft = max(usable.Until-now, 0)
	}
	o.mu.Lock()
	stats.Wants = o.lastWants
	o.mu.Unlock()
	switch {
	case o.rate != nil:
		stats.Arrived, stats.Taken, stats.Waiting = o.rate.Arrived(), o.rate.Taken(), o.rate.Waiting()
		stats.Debt = o.rate.Debt()
	case o.gauge != nil:
		stats.Arrived, stats.Taken, stats.Waiting = o.gauge.Arrived(), o.gauge.Taken(), o.gauge.Waiting()
		stats.InUse = o.gauge.InUse()
	case o.budget != nil:
		stats.Budget = &BudgetStats{o.budget.Spent(), o.budget.Left(), o.budget.Owed(), o.budget.Waiting()}
	}
	return stats
}

// Health is the state of the connection to the servers.
type Health struct {
	// Server is asked at present: the master, as far as is known.
	Server string
	// Endpoints are tried when that one does not answer: the configured ones and the peers that the master has named.
	Endpoints []string
	// Failures is the number of failed requests since the last answer.
	Failures int
	// LastError is the error of the last failed request; empty if none has failed. A redirect to the master is no failure.
	LastError string
	// LastErrorAt is when that request failed.
	LastErrorAt time.Time
}

// Health returns the state of the connection to the servers.
func (c *Client) Health() Health {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Health{
		Server:      c.session.Target(),
		Endpoints:   c.session.Endpoints(),
		Failures:    c.session.Failures(),
		LastError:   c.lastError,
		LastErrorAt: c.lastErrorAt,
	}
}
