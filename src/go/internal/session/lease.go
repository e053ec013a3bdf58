package session

import (
	"math"
	"time"
)

// Lease is a lease as its holder knows it.
type Lease struct {
	// Capacity is the amount that may be used: finite and not negative.
	Capacity float64
	// End is the expiry, counted from when the request was sent: never later than the server believes.
	End time.Duration
	// Refresh is the refresh interval.
	Refresh time.Duration
	// Token names the lease. It is 0 if the server speaks only the original protocol.
	Token uint64
	// Wire has the fields that requests echo.
	Wire Wire
	// Budget is set if the resource is a budget. Capacity is then what may be spent in its period in all.
	Budget *BudgetLease
}

// BudgetLease is what the lease of a budget says besides its capacity.
type BudgetLease struct {
	// Start and End are those of the period, in Unix seconds. End is math.MaxInt64 if the budget is spent once.
	Start, End int64
	// StartsOver says that all this incarnation had counts as spent. The client continues as another one.
	StartsOver bool
}

// IsLive returns whether the lease has not expired at now.
func (l *Lease) IsLive(now time.Duration) bool { return now < l.End }

// startsOver returns whether the lease tells the client of a budget to continue as another incarnation.
func (l *Lease) startsOver() bool { return l.Budget != nil && l.Budget.StartsOver }

// Wire has the fields of a lease that requests echo exactly as they were received.
type Wire struct {
	// ExpiryTime is in seconds since the epoch.
	ExpiryTime int64
	// RefreshInterval is in seconds.
	RefreshInterval int64
	Capacity        float64
}

// Mode says what to use when a lease has expired, or none could be obtained. The server does not guarantee this
// capacity, because it counts expired leases as free.
type Mode int

const (
	// Safe uses the safe capacity that was last received, and nothing if none was received.
	Safe Mode = iota
	// Pessimistic uses nothing.
	Pessimistic
	// Optimistic uses all of the wants.
	Optimistic
)

// String returns the name of the mode in lower case.
func (m Mode) String() string {
	switch m {
	case Safe:
		return "safe"
	case Pessimistic:
		return "pessimistic"
	case Optimistic:
		return "optimistic"
	}
	return "invalid"
}

// granted turns a granted amount into a capacity. Negative numbers and NaN count as 0, because a bad number must never
// open a limiter.
func granted(amount float64) float64 {
	if amount > 0 {
		return amount
	}
	return 0
}

// safe turns a safe capacity as sent by a server into a capacity. A negative number means unlimited.
func safe(amount float64) float64 {
	if amount < 0 {
		return math.Inf(1)
	}
	return granted(amount)
}
