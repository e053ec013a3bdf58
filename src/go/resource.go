package leaseway

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leaseway/leaseway/src/go/internal/limiter"
	"github.com/leaseway/leaseway/src/go/internal/session"
)

// Kinds of resources, as errors name them.
const (
	kindRate   = "rate"
	kindGauge  = "gauge"
	kindBudget = "budget"
	kindPlain  = "resource without a limiter"
)

// sharedResource is an open resource: the state that all its handles share.
type sharedResource struct {
	client   *Client
	id       string
	kind     string
	settings *resourceSettings
	// rate, gauge or budget enforces the capacity; none of them for a resource without a limiter.
	rate   *limiter.Rate
	gauge  *limiter.Gauge
	budget *limiter.Budget
	// refs counts handles, permits and reservations. At 0 the resource is closed.
	refs atomic.Int64
	// effectivePriority is the priority at which the server counts this client.
	effectivePriority atomic.Int64

	mu sync.Mutex
	// demand estimates the wants; if it is nil, they are fixed.
	demand *limiter.Demand
	fixed  float64
	// lastWants is what was last asked for.
	lastWants float64
	tracker   *session.UsageTracker
	// units and busy are the reported usage of a resource without a limiter.
	units      uint64
	busy       time.Duration
	reportsUse bool
	inUse      float64
	usable     session.Usable
	isClosed   bool
	// changed is closed and replaced when usable changes. It stays closed when the resource is closed, as done does.
	changed chan struct{}
	done    chan struct{}

	// estimateAt is the time of the next estimate of the wants, or session.Never. The lock of the client guards it.
	estimateAt time.Duration
}

func (o *sharedResource) estimatesWants() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.demand != nil
}

func (o *sharedResource) setFixedWants(wants float64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.demand, o.fixed = nil, wants
}

// estimateWants estimates the wants from now on.
func (o *sharedResource) estimateWants() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.demand = limiter.NewDemand(o.gauge != nil)
}

// wants returns the demand now.
func (o *sharedResource) wants(now time.Duration) session.Wants {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.budget != nil {
		amount, spent := o.budget.Wants(now)
		o.lastWants = amount
		return session.Wants{Amount: amount, Priority: *o.settings.priority, Spent: spent}
	}
	wants := session.Wants{Amount: o.fixed, Priority: *o.settings.priority, Outstanding: o.inUse}
	// Read the peak once, because reading resets it, and both wants and usage depend on it.
	peak := uint64(0)
	if o.gauge != nil {
		peak = o.gauge.TakePeak()
		wants.Outstanding = float64(o.gauge.Outstanding())
	}
	if o.demand != nil {
		if o.rate != nil {
			o.demand.Sample(now, o.rate.Sample())
		} else {
			o.demand.Sample(now, limiter.Sample{Count: peak})
		}
		wants.Amount = min(o.demand.Wants(now), maxWants)
	}
	o.lastWants = wants.Amount
	wants.Usage = o.usage(now, peak)
	return wants
}

// usage returns the usage of a pool since the last report. It is nil if there is neither a limiter nor reported usage:
// then the server assumes that everything is used.
func (o *sharedResource) usage(now time.Duration, peak uint64) *session.Usage {
	switch {
	case o.tracker == nil:
		return nil
	case o.gauge != nil:
		part := 0.0
		if peak > 0 {
			part = float64(peak) / o.gauge.Capacity()
		}
		return o.tracker.OfGauge(o.counters(now), part)
	case o.rate == nil && !o.reportsUse:
		return nil
	}
	return o.tracker.OfRate(o.counters(now))
}

func (o *sharedResource) counters(now time.Duration) session.UsageCounters {
	counters := session.UsageCounters{At: now, Taken: o.units, Recharging: o.busy}
	switch {
	case o.rate != nil:
		counters.Taken, counters.Recharging = o.rate.Usage()
	case o.gauge != nil:
		counters.Taken = o.gauge.Taken()
	}
	return counters
}

// setPool applies the state of a pool from an answer; pool is nil if the resource is none. usage is what the request of
// that answer reported.
func (o *sharedResource) setPool(now, suspended time.Duration, pool *session.PoolState, usage *session.Usage) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if pool == nil && o.tracker == nil {
		return
	}
	if pool == nil {
		o.tracker = nil
	} else {
		o.tracker = session.TrackUsage(o.tracker, *pool, o.counters(now), usage)
	}
	o.setLimiter(suspended)
}

// apply applies what may be used. It returns what could be used before, and whether the resource is open.
func (o *sharedResource) apply(suspended time.Duration, usable session.Usable) (before session.Usable, isOpen bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before = o.usable
	if o.isClosed {
		return before, false
	}
	is, was := leasedCapacity(&usable), leasedCapacity(&before)
	// A rise is reported before it is applied and a fall afterwards, so the observer errs upwards.
	if is > was {
		o.client.record(o.id, is)
	}
	o.setUsable(suspended, usable)
	if is < was {
		o.client.record(o.id, is)
	}
	return before, true
}

// leasedCapacity returns the capacity that servers guarantee.
func leasedCapacity(usable *session.Usable) float64 {
	if usable.Basis == session.Leased {
		return usable.Capacity
	}
	return 0
}

// setUsable passes what may be used on to the limiter and to those who wait for a change.
func (o *sharedResource) setUsable(suspended time.Duration, usable session.Usable) {
	isSame := o.usable.SameValue(&usable)
	o.usable = usable
	o.setLimiter(suspended)
	if !isSame {
		close(o.changed)
		o.changed = make(chan struct{})
	}
}

// setLimiter passes what may be used on to the limiter, which has a clock that stops during a suspend.
func (o *sharedResource) setLimiter(suspended time.Duration) {
	until := o.usable.Until
	if until != session.Never {
		until -= suspended
	}
	switch {
	case o.rate != nil:
		buffer := time.Duration(-1)
		if o.tracker != nil && o.usable.Basis == session.Leased {
			buffer = o.tracker.State.Burst
		}
		o.rate.SetUsable(o.usable.Capacity, until, o.usable.Then, buffer)
	case o.gauge != nil:
		o.gauge.SetUsable(o.usable.Capacity, until, o.usable.Then)
	}
}

// current returns what may be used now, and whether the resource is closed. A lease that has expired counts as such even
// if the client's goroutine has not run since.
func (o *sharedResource) current() (usable session.Usable, changed <-chan struct{}, isClosed bool) {
	now := o.client.now()
	o.mu.Lock()
	defer o.mu.Unlock()
	usable = o.usable
	if now >= usable.Until {
		usable = session.Usable{Capacity: usable.Then, Basis: session.Fallback, Until: session.Never}
	}
	return usable, o.changed, o.isClosed
}

// nextSampleAt returns when to estimate wants again, if that should not wait for the next refresh.
func (o *sharedResource) nextSampleAt() (time.Duration, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.demand == nil {
		return 0, false
	}
	return o.demand.NextSampleAt()
}

// isUnderPressure returns whether callers wait or there is debt, and wants are estimated.
func (o *sharedResource) isUnderPressure() bool {
	waiting := uint64(0)
	switch {
	case o.budget != nil:
		return o.budget.HasWaiting()
	case o.rate != nil:
		waiting = o.rate.Waiting() + o.rate.Debt()
	case o.gauge != nil:
		waiting = o.gauge.Waiting()
	}
	return waiting > 0 && o.estimatesWants()
}

// closeLimiter closes the limiter. The lock of the client must be held.
func (o *sharedResource) closeLimiter() {
	switch {
	case o.rate != nil:
		o.rate.Close()
	case o.gauge != nil:
		o.gauge.Close()
	case o.budget != nil:
		o.budget.Close()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	// A change that the driver is about to apply comes too late.
	o.isClosed = true
	o.setUsable(0, session.Usable{Basis: session.Unknown, Until: session.Never})
	close(o.changed)
	close(o.done)
	o.client.record(o.id, 0)
}

func (o *sharedResource) closed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.isClosed
}

// retain adds a reference, unless the resource is closed.
func (o *sharedResource) retain() bool {
	for {
		refs := o.refs.Load()
		if refs <= 0 {
			return false
		}
		if o.refs.CompareAndSwap(refs, refs+1) {
			return true
		}
	}
}

func (o *sharedResource) drop() {
	if o.refs.Add(-1) == 0 {
		o.client.closeResource(o)
	}
}

// Basis says where a capacity comes from.
type Basis int

const (
	// Unknown means that there was neither an answer nor a failure yet. Nothing may be used.
	Unknown Basis = iota
	// Leased means that there is a live lease.
	Leased
	// Fallback means that the lease has expired, or none could be obtained: the [Mode] decides.
	Fallback
)

// String returns the name of the basis in lower case.
func (b Basis) String() string { return session.Basis(b).String() }

// Resource is a handle of a resource: its capacity, lease and wants. All handles of a resource of one client share one
// lease and one limiter. The lease is released when the last handle is closed.
type Resource struct {
	opened *sharedResource
	closed atomic.Bool
}

// Name returns the name of the resource.
func (r *Resource) Name() string { return r.opened.id }

// Capacity returns the capacity that may be used now, and where it comes from. It is infinite if there is no limit.
func (r *Resource) Capacity() (float64, Basis) {
	usable, _, _ := r.opened.current()
	return usable.Capacity, Basis(usable.Basis)
}

// Changed returns a channel that is closed when the capacity or its basis changes next. Call it before [Resource.Capacity],
// so that no change in between is missed. After the resource was closed, the channel is closed: see [Resource.Done].
func (r *Resource) Changed() <-chan struct{} {
	_, changed, _ := r.opened.current()
	return changed
}

// Done returns a channel that is closed when the resource is closed: with its last handle, or with the client.
func (r *Resource) Done() <-chan struct{} { return r.opened.done }

// Lease returns the capacity of the live lease and the time until it expires. The time is 0 without a live lease.
func (r *Resource) Lease() (capacity float64, left time.Duration) {
	return r.opened.client.lease(r.opened.id)
}

// Ready waits for a lease. A fallback capacity does not count. If the context ends first, the error is a
// [NotReadyError], which says why there is no lease. If the resource is closed, the error is [ErrClosed].
func (r *Resource) Ready(ctx context.Context) error { return r.opened.client.ready(ctx, r.opened) }

// SetWants sets the wants. A change by more than a tenth is sent at once, a smaller one with the next refresh.
func (r *Resource) SetWants(wants float64) error {
	if err := checkWants(wants); err != nil {
		return err
	}
	r.opened.setFixedWants(wants)
	r.opened.client.demandChanged(r.opened)
	return nil
}

// Priority returns the priority at which the server counts this client, from the last answer. Before that it is the
// claimed one.
func (r *Resource) Priority() int64 { return r.opened.effectivePriority.Load() }

// Pool returns the state of this client in the pool, if the resource is one (PRIORITY_POOL) and the server has answered.
func (r *Resource) Pool() (PoolState, bool) {
	r.opened.mu.Lock()
	defer r.opened.mu.Unlock()
	if r.opened.tracker == nil {
		return PoolState{}, false
	}
	state := r.opened.tracker.State
	return PoolState{PoolStanding(state.Standing), state.Assigned, state.MinCapacity, state.Reason}, true
}

// Close closes the handle. With the last handle of the resource, its limiter is closed and its lease is released. Permits
// and reservations count as handles. Close is idempotent, and does not wait for the server.
func (r *Resource) Close() {
	if r.closed.CompareAndSwap(false, true) {
		r.opened.drop()
	}
}

// estimateWants estimates the wants from now on.
func (r *Resource) estimateWants() {
	r.opened.estimateWants()
	r.opened.client.demandChanged(r.opened)
}

// Share is a resource without a limiter: its user has to respect the capacity.
type Share struct{ Resource }

// ReportUse reports usage since the last call: the units used, and the time in which the capacity was in use. In a pool
// (PRIORITY_POOL) the server bills the units, and a client that never reports is assumed to use everything. Outside of
// pools nothing is sent.
func (s *Share) ReportUse(units int, busy time.Duration) error {
	count, err := checkCount(units)
	if err != nil {
		return err
	}
	o := s.opened
	o.mu.Lock()
	defer o.mu.Unlock()
	o.units, o.busy, o.reportsUse = o.units+count, o.busy+max(busy, 0), true
	return nil
}

// Hold sets the amount that may be in use. While that exceeds the lease, the client reports it, and the server gives it
// to nobody else. Infinity stands for everything held for this client. For owners that forward their leases and cannot
// revoke them.
func (s *Share) Hold(inUse float64) {
	if math.IsNaN(inUse) {
		inUse = 0
	}
	o := s.opened
	o.mu.Lock()
	before := o.inUse
	o.inUse = min(max(inUse, 0), maxWants)
	isChanged := o.inUse != before
	o.mu.Unlock()
	if isChanged {
		o.client.demandChanged(o)
	}
}

// PoolStanding is the standing of a client in a pool.
type PoolStanding int

const (
	// PoolWaiting means that the client has nothing, and is queued.
	PoolWaiting PoolStanding = iota
	// PoolFree means that it has what clients without an assignment get.
	PoolFree
	// PoolPriority means that it has its assignment.
	PoolPriority
	// PoolRevoking means that its capacity is being revoked.
	PoolRevoking
)

// PoolState is the state of a client in a pool.
type PoolState struct {
	Standing PoolStanding
	// Assigned is the assignment of the client; 0 if it has none.
	Assigned float64
	// MinCapacity is the minimum useful capacity: a client has nothing, or at least this much.
	MinCapacity float64
	// Reason says why it has nothing, if the server says so.
	Reason string
}
