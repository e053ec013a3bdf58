package leaseway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leaseway/leaseway/src/go/internal/limiter"
)

// Limiter is what an operation waits for before it begins: a [Rate], a [Gauge], or several of them as [Limits].
type Limiter interface {
	// Begin waits until an operation may begin. The caller calls end when the operation is over. If there is an error,
	// nothing was taken, and end must not be called.
	Begin(ctx context.Context) (end func(), err error)
}

// Cost is what an operation costs at one limit: see [Rate.Of] and [Gauge.Of].
type Cost struct {
	opened *opened
	n      int
}

// Of returns n permits of this rate, for [Client.Limits].
func (r *Rate) Of(n int) Cost { return Cost{r.opened, n} }

// Of returns n permits of this gauge, for [Client.Limits].
func (g *Gauge) Of(n int) Cost { return Cost{g.opened, n} }

// Limits are several limits that an operation needs permits of.
//
// A caller takes the permits of all limits at the same moment, or nothing. While it waits it holds nothing. At each limit
// it is served first come, first served, together with callers that need that limit alone, so a caller that needs much is
// not starved, and no order of the limits leads to a deadlock. A limit of which 0 permits are needed is not waited for.
//
// Limits are cheap, and need not be closed. They do not keep their resources open: the handles do.
type Limits struct {
	resources []*opened
	joint     *limiter.Joint
}

// Limits combines these costs. It returns an error if a number of permits is negative.
func (c *Client) Limits(costs ...Cost) (*Limits, error) {
	resources := make([]*opened, len(costs))
	permits := make([]int, len(costs))
	for i, cost := range costs {
		resources[i], permits[i] = cost.opened, cost.n
	}
	return newLimits(resources, permits)
}

func newLimits(resources []*opened, permits []int) (*Limits, error) {
	parts := make([]limiter.Part, len(resources))
	for i, o := range resources {
		n, err := checkCount(permits[i])
		if err != nil {
			return nil, fmt.Errorf("%w of %q", err, o.id)
		}
		parts[i] = limiter.Part{Rate: o.rate, Gauge: o.gauge, N: n}
	}
	return &Limits{resources, limiter.NewJoint(parts)}, nil
}

// WithPermits returns the same limits with other numbers of permits, one for each.
func (l *Limits) WithPermits(permits ...int) (*Limits, error) {
	if err := l.checkNumbers(len(permits)); err != nil {
		return nil, err
	}
	return newLimits(l.resources, permits)
}

// Resources returns the names of the resources, in order.
func (l *Limits) Resources() []string {
	names := make([]string, len(l.resources))
	for i, o := range l.resources {
		names[i] = o.id
	}
	return names
}

// Acquire waits for the permits of all limits, and takes them together. The permits of gauges are in use until release is
// called, which is idempotent; those of rates are used up. If the context ends first, nothing is taken.
func (l *Limits) Acquire(ctx context.Context) (release func(), err error) {
	if err := l.joint.Acquire(ctx); err != nil {
		return nil, err
	}
	return l.keep()
}

// TryAcquire takes the permits of all limits if they are available now. If one refuses, the error is a [RefusalError], and
// nothing is taken from the others.
func (l *Limits) TryAcquire() (release func(), err error) {
	if err := l.refusal(l.joint.TryAcquire()); err != nil {
		return nil, err
	}
	return l.keep()
}

// Begin waits for the permits of all limits, see [Limiter].
func (l *Limits) Begin(ctx context.Context) (end func(), err error) { return l.Acquire(ctx) }

// Reserve waits for the permits of all limits, for work whose cost is known only at its end.
func (l *Limits) Reserve(ctx context.Context) (*Reservations, error) {
	if err := l.joint.Acquire(ctx); err != nil {
		return nil, err
	}
	return l.keepReserved()
}

// TryReserve reserves the permits of all limits if they are available now. If one refuses, the error is a [RefusalError].
func (l *Limits) TryReserve() (*Reservations, error) {
	if err := l.refusal(l.joint.TryAcquire()); err != nil {
		return nil, err
	}
	return l.keepReserved()
}

func (l *Limits) refusal(refusal *limiter.Refusal) error {
	switch {
	case refusal == nil:
		return nil
	case refusal.IsClosed:
		return ErrClosed
	}
	return &RefusalError{refusal.Index, l.resources[refusal.Index].id, refusal.Burst, refusal.RetryAfter}
}

// keep keeps the resources open until the permits are released.
func (l *Limits) keep() (release func(), err error) {
	if !l.retain() {
		return nil, ErrClosed
	}
	return sync.OnceFunc(func() {
		l.joint.Release()
		l.drop()
	}), nil
}

func (l *Limits) keepReserved() (*Reservations, error) {
	if !l.retain() {
		return nil, ErrClosed
	}
	return &Reservations{limits: l, promises: l.joint.Reserve()}, nil
}

// retain keeps the resources open, or releases the permits if one is closed.
func (l *Limits) retain() bool {
	for i, o := range l.resources {
		if !o.retain() {
			l.joint.Release()
			for _, kept := range l.resources[:i] {
				kept.drop()
			}
			return false
		}
	}
	return true
}

func (l *Limits) drop() {
	for _, o := range l.resources {
		o.drop()
	}
}

// Charge charges each rate for permits that were used already, see [Rate.Charge]: one number for each limit. Those of
// gauges are ignored. If the maximum debt of rates is exceeded, the error has a [DebtExceededError], and names the first of
// them; the others were charged in full.
func (l *Limits) Charge(permits ...uint64) error {
	if err := l.checkNumbers(len(permits)); err != nil {
		return err
	}
	return l.eachRate(func(i int, rate *limiter.Rate) error { return rate.Charge(permits[i]) })
}

// Refund returns to each rate the permits that passed last, because they were not used, see [Rate.Refund]: one number for
// each limit. Those of gauges are ignored: release their permits.
func (l *Limits) Refund(permits ...uint64) error {
	if err := l.checkNumbers(len(permits)); err != nil {
		return err
	}
	return l.eachRate(func(i int, rate *limiter.Rate) error {
		rate.Refund(permits[i])
		return nil
	})
}

// eachRate does something at each rate. It returns the first error.
func (l *Limits) eachRate(do func(i int, rate *limiter.Rate) error) error {
	var first error
	for i, o := range l.resources {
		if o.rate == nil {
			continue
		}
		if err := o.counted(do(i, o.rate)); err != nil && first == nil {
			first = fmt.Errorf("%q: %w", o.id, err)
		}
	}
	return first
}

func (l *Limits) checkNumbers(given int) error {
	if given == len(l.resources) {
		return nil
	}
	return fmt.Errorf("leaseway: %d numbers for %d limits: pass one for each, in order", given, len(l.resources))
}

// RefusalError says that a limit refuses a request for permits of several. Nothing was taken from any of them.
type RefusalError struct {
	// Index is the index of the limit. If several refuse, it is the one whose permits will be available last.
	Index int
	// Resource is its name.
	Resource string
	// Burst is the maximum number of permits of it that can be available at once, if more are needed; otherwise 0.
	Burst      float64
	retryAfter time.Duration
}

// RetryAfter returns when to try again: the permits of all limits will be available after this time, if nothing changes.
// It returns false if that is unknown, or never at the current capacity.
func (e *RefusalError) RetryAfter() (time.Duration, bool) {
	return max(e.retryAfter, 0), e.retryAfter != limiter.Unknown
}

func (e *RefusalError) Error() string {
	why := "no permit is free now"
	if e.Burst > 0 {
		why = fmt.Sprintf("more than the %g that can be available at once", e.Burst)
	}
	return fmt.Sprintf("leaseway: %q: %s", e.Resource, why)
}

// Reservations are permits of several limits for work whose cost is known only at its end. They have to be settled or
// cancelled: they keep their resources open, and until then all of their permits count as used.
type Reservations struct {
	limits   *Limits
	promises []limiter.Promise
	settled  atomic.Bool
}

// Reserved returns the number of permits taken of each limit.
func (r *Reservations) Reserved() []int {
	parts := r.limits.joint.Parts()
	permits := make([]int, len(parts))
	for i := range parts {
		permits[i] = int(parts[i].N)
	}
	return permits
}

// Settle settles for the permits that were used, one number for each limit. Each rate gets its unused permits back, or is
// charged for the excess, see [Reservation.Settle]. The permits of gauges are returned; their numbers are ignored. If the
// maximum debt of rates is exceeded, the error has a [DebtExceededError]; all rates are settled. Only the first call counts.
func (r *Reservations) Settle(used ...uint64) error {
	l := r.limits
	if err := l.checkNumbers(len(used)); err != nil {
		return err
	}
	if !r.settled.CompareAndSwap(false, true) {
		return nil
	}
	defer l.drop()
	l.joint.Release()
	return l.eachRate(func(i int, rate *limiter.Rate) error { return rate.Settle(r.promises[i], used[i]) })
}

// Cancel settles for no permits.
func (r *Reservations) Cancel() { _ = r.Settle(slices.Repeat([]uint64{0}, len(r.promises))...) }

// counted counts permits that were not charged.
func (o *opened) counted(err error) error {
	var exceeded *limiter.DebtExceededError
	if !errors.As(err, &exceeded) {
		return err
	}
	o.client.stats.uncharged.Add(exceeded.Uncharged)
	return &DebtExceededError{exceeded.Uncharged, exceeded.MaxDebt}
}
