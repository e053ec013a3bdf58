package session

import (
	"math"
	"math/rand/v2"
	"time"
)

// Pace has the timeouts and intervals of a session.
type Pace struct {
	// Deadline is the timeout of a request.
	Deadline time.Duration
	// RefreshMin is the minimum refresh interval, whatever the server says. Hints and changes of demand are exempt. Less
	// than 100 ms counts as 100 ms, here and below, so that no setting makes a client hammer a server.
	RefreshMin time.Duration
	// BackoffFirst is the pause after the first failure. Each further failure makes it 1.6 times as long.
	BackoffFirst time.Duration
	// BackoffMax is the maximum pause. It is also bounded such that all endpoints are tried once per refresh interval.
	BackoffMax time.Duration
	// MasterlessMax is the maximum pause while servers answer that they have no master, because they will elect one soon.
	MasterlessMax time.Duration
	// Ahead selects the resources that are asked for together: those that are due within this time.
	Ahead time.Duration
}

// DefaultPace returns the settings that all clients of Leaseway share.
func DefaultPace() Pace {
	return Pace{
		Deadline:      3 * time.Second,
		RefreshMin:    time.Second,
		BackoffFirst:  100 * time.Millisecond,
		BackoffMax:    15 * time.Second,
		MasterlessMax: time.Second,
		Ahead:         Never,
	}
}

const (
	backoffGrowth = 1.6

	// defaultRefresh is the refresh interval assumed without a lease: the default of servers.
	defaultRefresh = 5 * time.Second

	// minRequestGap is the minimum time between requests outside the refresh interval: hints, changes of demand and early
	// confirmations.
	minRequestGap = 100 * time.Millisecond
)

// longestRetry returns the maximum time between two attempts. Each endpoint is tried within refresh, the shortest
// interval of the known leases, so the session notices within one interval that a server is back.
func (p *Pace) longestRetry(refresh time.Duration, endpoints int) time.Duration {
	return max(refresh, p.RefreshMin) / time.Duration(max(endpoints, 1))
}

// backoff returns the pause after a number of failures in a row, the last of which took some time. Attempts are sent at
// most longest apart. The pause is a random part, at least half, of the computed one, so that clients that failed
// together do not retry together.
func (p *Pace) backoff(failures int, longest, took time.Duration, rng *rand.Rand) time.Duration {
	apart := math.Min(float64(p.BackoffFirst)*math.Pow(backoffGrowth, float64(max(failures-1, 0))), float64(longest))
	return scaled(math.Max(apart-float64(took), float64(minRequestGap)), 0.5+rng.Float64()/2)
}

// refresh returns the time until the next refresh: a little less than the interval, so that clients drift apart, and
// always while a third of the lease is left, so that one lost answer costs nothing.
func (p *Pace) refresh(interval, left time.Duration, rng *rand.Rand) time.Duration {
	least := max(p.RefreshMin, minRequestGap)
	interval = scaled(float64(max(interval, least)), 0.9+rng.Float64()/10)
	return max(min(interval, left/3*2), min(least, interval))
}

func scaled(span, factor float64) time.Duration { return time.Duration(span * factor) }
