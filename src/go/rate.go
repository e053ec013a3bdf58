package leaseway

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/leaseway/leaseway/src/go/internal/limiter"
)

// Rate is a handle of a rate: a resource with a capacity in permits per second. Its methods have the names of those of
// golang.org/x/time/rate.
//
// In any period T at most capacity · T plus the burst pass. Waiting callers are served first come, first served, and a
// wait whose context ends takes nothing. No call waits for a server: permits come from the lease.
type Rate struct {
	Resource
	limiter *limiter.Rate
}

// Allow takes a permit if one is available now.
func (r *Rate) Allow() bool { return r.limiter.TryAcquire(1) }

// AllowN takes n permits if they are available now, or none. A number above the burst is always refused, and not counted as
// demand: wait for it with [Rate.WaitN], or raise the burst.
func (r *Rate) AllowN(n int) bool {
	count, err := checkCount(n)
	return err == nil && r.limiter.TryAcquire(count)
}

// Wait waits for a permit.
func (r *Rate) Wait(ctx context.Context) error { return r.limiter.Wait(ctx, 1) }

// WaitN waits for n permits at once. No caller that came later is admitted before, so a large request is not starved. The
// number may exceed the burst.
func (r *Rate) WaitN(ctx context.Context, n int) error {
	count, err := checkCount(n)
	if err != nil {
		return err
	}
	return r.limiter.Wait(ctx, count)
}

// Reserve waits for a permit that can be cancelled, see [Rate.ReserveN].
func (r *Rate) Reserve(ctx context.Context) (*Reservation, error) { return r.ReserveN(ctx, 1) }

// ReserveN waits for n permits, for work whose cost is known only at its end. Unlike in x/time/rate, a reservation has
// its permits already, because the capacity may change before a later time. Unused permits are returned as far as the
// burst has had room for them since, so the burst should be at least as large as a reservation: see [WithWindow].
func (r *Rate) ReserveN(ctx context.Context, n int) (*Reservation, error) {
	count, err := checkCount(n)
	if err != nil {
		return nil, err
	}
	promise, err := r.limiter.Reserve(ctx, count)
	if err != nil {
		return nil, err
	}
	return r.keep(promise)
}

// TryReserveN reserves n permits if they are available now.
func (r *Rate) TryReserveN(n int) (*Reservation, bool) {
	count, err := checkCount(n)
	if err != nil {
		return nil, false
	}
	promise, ok := r.limiter.TryReserve(count)
	if !ok {
		return nil, false
	}
	reservation, err := r.keep(promise)
	return reservation, err == nil
}

func (r *Rate) keep(promise limiter.Promise) (*Reservation, error) {
	if !r.opened.retain() {
		r.limiter.Settle(promise, 0)
		return nil, ErrClosed
	}
	return &Reservation{rate: r, promise: promise}, nil
}

// Charge charges n permits that were used already. Missing permits become debt, which is paid from the lease before any
// caller passes. Estimated wants rise accordingly. The error is a [DebtExceededError] if the maximum debt is exceeded.
func (r *Rate) Charge(n int) error {
	count, err := checkCount(n)
	if err != nil {
		return err
	}
	return r.opened.counted(r.limiter.Charge(count))
}

// Refund returns n permits that passed last and were not used: as many as would be available now had they never passed,
// which may be none. To return the permits of a certain call, reserve them.
func (r *Rate) Refund(n int) error {
	count, err := checkCount(n)
	if err == nil {
		r.limiter.Refund(count)
	}
	return err
}

// Debt returns the current debt in permits.
func (r *Rate) Debt() int { return toInt(r.limiter.Debt()) }

// Limit returns the capacity in permits per second. It is infinite if there is no limit.
func (r *Rate) Limit() float64 { return r.limiter.State().Capacity }

// Burst returns the number of permits that can be saved up at the current capacity.
func (r *Rate) Burst() float64 { return r.limiter.State().Burst }

// Tokens returns the permits available now, even if others wait for them. It is negative if there is debt.
func (r *Rate) Tokens() float64 { return r.limiter.State().Available }

// RetryAfter returns how long a new caller would wait for n permits if nothing changed, for a Retry-After header. It
// returns false if that is unknown because there is no capacity.
func (r *Rate) RetryAfter(n int) (time.Duration, bool) {
	wait := r.limiter.ReadyIn(uint64(max(n, 0)))
	return max(wait, 0), wait != limiter.Unknown
}

// EstimateWants estimates the wants from now on, if they were fixed.
func (r *Rate) EstimateWants() { r.estimateWants() }

// Begin waits for a permit, see [Limiter].
func (r *Rate) Begin(ctx context.Context) (end func(), err error) {
	return func() {}, r.Wait(ctx)
}

// Reservation has permits of a rate for work whose cost is known only at its end. It has to be settled or cancelled: it
// keeps its rate open, and until then all of its permits count as used.
type Reservation struct {
	rate    *Rate
	promise limiter.Promise
	settled atomic.Bool
}

// Reserved returns the number of permits taken.
func (r *Reservation) Reserved() int { return toInt(r.promise.N) }

// Settle settles for the permits that were used. The rest is returned, as much of it as would be available now had it
// never been taken. Usage beyond the reservation is charged, see [Rate.Charge]. If used is negative, there is an error, and
// all of the reservation counts as used. Only the first call counts.
func (r *Reservation) Settle(used int) error {
	if !r.settled.CompareAndSwap(false, true) {
		return nil
	}
	defer r.rate.opened.drop()
	count, err := checkCount(used)
	if err != nil {
		r.rate.limiter.Settle(r.promise, r.promise.N)
		return err
	}
	return r.rate.opened.counted(r.rate.limiter.Settle(r.promise, count))
}

// Cancel settles for no permits.
func (r *Reservation) Cancel() { _ = r.Settle(0) }
