package session

import (
	"math"
	"time"
)

// Wants is the demand of a client for one resource.
type Wants struct {
	Amount float64
	// Priority is the claimed priority. Its meaning depends on the resource.
	Priority int64
	// Outstanding is the amount in use if that exceeds the lease, else 0. For gauges.
	Outstanding float64
	// Usage is the usage of the lease that is echoed with this demand. For pools.
	Usage *Usage
	// Spent is what was spent of a budget; nil for other resources.
	Spent *BudgetUse
}

// BudgetUse is the report of a client of a budget.
type BudgetUse struct {
	// Spent is all that this incarnation has spent in the period.
	Spent float64
	// Period is the start of the period, in Unix seconds. It is 0 before the first lease.
	Period      int64
	Incarnation uint64
	// Need is the smallest useful slice: what the first waiting caller wants.
	Need float64
	// Token names the lease that gave the allowance; 0 without one. Requests name no other.
	Token uint64
	// IsShort is set if a larger allowance is needed soon.
	IsShort bool
}

func (u *BudgetUse) isUrgent(asked *BudgetUse) bool {
	hasMoved := u.Spent > asked.Spent || u.Need > asked.Need
	return u.Incarnation != asked.Incarnation || u.Period != asked.Period || u.IsShort && hasMoved
}

// incarnation returns the incarnation of a client of a budget; 0 for other resources.
func (w *Wants) incarnation() uint64 {
	if w == nil || w.Spent == nil {
		return 0
	}
	return w.Spent.Incarnation
}

// changeThreshold is the relative change of demand that is sent at once.
const changeThreshold = 0.1

// isUrgent returns whether the demand differs so much from the one asked for last that it should not wait for the next
// refresh.
func (w *Wants) isUrgent(asked *Wants) bool {
	if w.Spent != nil {
		return asked.Spent == nil || w.Spent.isUrgent(asked.Spent)
	}
	return changed(w.Amount, asked.Amount) || changed(w.Outstanding, asked.Outstanding) || w.Priority != asked.Priority
}

func changed(is, was float64) bool { return math.Abs(is-was) > was*changeThreshold }

// isSame returns whether a renewal stands for a request with this demand. What is outstanding, was used or was spent is
// reported with each request.
func (w *Wants) isSame(asked *Wants) bool {
	return w.Amount == asked.Amount && w.Priority == asked.Priority &&
		w.Outstanding == 0 && asked.Outstanding == 0 && w.Usage == nil && asked.Usage == nil && w.Spent == nil
}

// Outgoing is a request to send. Exactly one of Asks, Releases and Stream is set.
type Outgoing struct {
	// Number identifies the request when its outcome is reported.
	Number uint64
	// Target is the server, as HOST:PORT.
	Target   string
	Asks     []Ask
	Releases []Release
	// Stream is a message on a stream of renewals.
	Stream *StreamRequest
}

// Ask is one resource of a request for capacity.
type Ask struct {
	ID     string
	Demand Wants
	// Has is the newest lease while it is live.
	Has *Lease
	// Had is the newest lease once it has expired, because a new master may still find it among the stored promises.
	Had *Lease
}

// Release is one resource to release.
type Release struct {
	ID string
	// Token names the newest lease. It is 0 if the lease has no name.
	Token uint64
	// Spent is the last report of a budget; nil for other resources.
	Spent *BudgetUse
}

// GrantedLease is one lease of an answer.
type GrantedLease struct {
	ID string
	// Length counts from when the request was sent.
	Length  time.Duration
	Refresh time.Duration
	// Token names the lease. It is 0 if the lease has no name.
	Token uint64
	Wire  Wire
	// Safe is the safe capacity, if HasSafe is set.
	Safe    float64
	HasSafe bool
	// Budget is set if the resource is a budget.
	Budget *BudgetLease
}

// Basis says where a capacity comes from.
type Basis int

const (
	// Unknown means that there was neither an answer nor a failure yet.
	Unknown Basis = iota
	// Leased means that there is a live lease.
	Leased
	// Fallback means that the lease has expired, or none could be obtained: the mode decides.
	Fallback
)

// String returns the name of the basis in lower case.
func (b Basis) String() string {
	switch b {
	case Unknown:
		return "unknown"
	case Leased:
		return "lease"
	case Fallback:
		return "fallback"
	}
	return "invalid"
}

// Usable is what may be used of a resource.
type Usable struct {
	// Capacity is not negative and not NaN. It is infinite if there is no limit.
	Capacity float64
	Basis    Basis
	// Until is when Then replaces Capacity, unless the lease is refreshed before. It is Never without a lease.
	Until time.Duration
	// Then is the fallback capacity that may be used from Until on.
	Then float64
}

// SameValue compares what may be used now. It ignores when that ends.
func (u *Usable) SameValue(other *Usable) bool {
	return u.Capacity == other.Capacity && u.Basis == other.Basis
}
