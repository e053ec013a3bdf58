package leaseway

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leaseway/leaseway/src/go/internal/limiter"
)

// Limiter is what an operation waits for before it begins: a [Rate], a [Gauge], or several limits as [Limits].
type Limiter interface {
	// Begin waits until an operation may begin. The caller calls end when the operation is over. If there is an error,
	// nothing was taken, and end must not be called.
	Begin(ctx context.Context) (end func(), err error)
}

// Cost is what an operation costs at one limit: see [Rate.Of], [Gauge.Of] and [Budget.Of].
type Cost struct {
	opened *sharedResource
	// number is a number of permits, or an amount of a budget.
	number float64
}

// Of returns n permits of this rate, for [Client.Limits].
func (r *Rate) Of(n int) Cost { return Cost{r.opened, float64(n)} }

// Of returns n permits of this gauge, for [Client.Limits].
func (g *Gauge) Of(n int) Cost { return Cost{g.opened, float64(n)} }

// Of returns an amount of this budget, for [Client.Limits]. An amount above the whole budget blocks all callers behind it, see
// [Budget.Spend].
func (b *Budget) Of(amount float64) Cost { return Cost{b.opened, amount} }

// Limits are several limits that an operation needs permits of, or amounts if they are budgets.
//
// A caller takes the permits of all limits at the same moment, or nothing. While it waits it holds nothing. At each limit
// it is served first come, first served, together with callers that need that limit alone, so a caller that needs much is
// not starved, and no order of the limits leads to a deadlock. A limit of which 0 permits are needed is not waited for.
//
// With budgets, a caller first waits for the amounts of all budgets, then for the permits. It holds nothing while it waits
// for a budget, and gives the amounts back if it does not get the permits.
//
// Methods that take one number for each limit take amounts for budgets, and whole numbers for rates and gauges.
//
// Limits are cheap, and need not be closed. They do not keep their resources open: the handles do.
type Limits struct {
	resources []*sharedResource
	// released has those of which an operation returns something at its end: gauges and budgets.
	released []*sharedResource
	joint    *limiter.JointBudgets
	// refundable is shared with the same limits with other numbers.
	refundable *limiter.Refundable
}

// Limits combines these costs, also those of other clients. It returns an [OptionError] if a number of permits is negative,
// or an amount is invalid.
func (c *Client) Limits(costs ...Cost) (*Limits, error) {
	resources := make([]*sharedResource, len(costs))
	numbers := make([]float64, len(costs))
	for i, cost := range costs {
		if cost.opened == nil {
			return nil, badOption("cost", "number %d is empty: use the method Of of a rate, gauge or budget", i+1)
		}
		resources[i], numbers[i] = cost.opened, cost.number
	}
	return newLimits(resources, numbers, new(limiter.Refundable))
}

func newLimits(resources []*sharedResource, numbers []float64, refundable *limiter.Refundable) (*Limits, error) {
	parts := make([]limiter.Part, len(resources))
	var released []*sharedResource
	for i, o := range resources {
		part, err := o.part(numbers[i])
		if err != nil {
			return nil, fmt.Errorf("%q: %w", o.id, err)
		}
		parts[i] = part
		if o.rate == nil {
			released = append(released, o)
		}
	}
	return &Limits{resources, released, limiter.NewJointBudgets(parts), refundable}, nil
}

func (o *sharedResource) part(number float64) (limiter.Part, error) {
	if o.budget != nil {
		return limiter.Part{Budget: o.budget, Amount: number}, checkAmount(number)
	}
	n, err := wholeNumber(number)
	return limiter.Part{Rate: o.rate, Gauge: o.gauge, N: n}, err
}

// WithPermits returns the same limits with other numbers, one for each: permits of rates and gauges, amounts of budgets.
func (l *Limits) WithPermits(numbers ...float64) (*Limits, error) {
	if err := l.checkNumbers(len(numbers)); err != nil {
		return nil, err
	}
	return newLimits(l.resources, numbers, l.refundable)
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
// called, which is idempotent; those of rates are used up, and amounts of budgets are spent. Gauges and budgets stay open
// until release is called; with rates alone it may be ignored. If the context ends first, nothing is taken. More than a
// gauge or a budget can have blocks all callers behind this one meanwhile.
func (l *Limits) Acquire(ctx context.Context) (release func(), err error) {
	spends, err := l.joint.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return l.keep(spends)
}

// TryAcquire takes the permits of all limits if they are available now. If one refuses, the error is a [RefusalError], and
// nothing is taken from the others.
func (l *Limits) TryAcquire() (release func(), err error) {
	spends, refusal := l.joint.TryAcquire()
	if refusal != nil {
		return nil, l.refusal(refusal)
	}
	return l.keep(spends)
}

// Begin waits for the permits of all limits, see [Limiter].
func (l *Limits) Begin(ctx context.Context) (end func(), err error) { return l.Acquire(ctx) }

// Reserve waits for the permits of all limits, for work whose cost is known only at its end.
func (l *Limits) Reserve(ctx context.Context) (*Reservations, error) {
	spends, err := l.joint.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return l.keepReserved(spends)
}

// TryReserve reserves the permits of all limits if they are available now. If one refuses, the error is a [RefusalError].
func (l *Limits) TryReserve() (*Reservations, error) {
	spends, refusal := l.joint.TryAcquire()
	if refusal != nil {
		return nil, l.refusal(refusal)
	}
	return l.keepReserved(spends)
}

func (l *Limits) refusal(refusal *limiter.Refusal) error {
	if refusal.IsClosed {
		return ErrClosed
	}
	o := l.resources[refusal.Index]
	return &RefusalError{refusal.Index, o.id, refusal.Burst, refusal.RetryAfter, o.budget != nil}
}

// keep keeps gauges and budgets open until the permits are released. Permits of rates are used up already.
func (l *Limits) keep(spends limiter.Spends) (release func(), err error) {
	if !retain(l.released) {
		return nil, l.giveBack(spends)
	}
	end := l.refundable.Add(l.joint.Parts(), spends)
	return sync.OnceFunc(func() {
		end()
		l.joint.Release()
		drop(l.released)
	}), nil
}

func (l *Limits) keepReserved(spends limiter.Spends) (*Reservations, error) {
	if !retain(l.resources) {
		return nil, l.giveBack(spends)
	}
	return &Reservations{limits: l, promises: l.joint.Reserve(), spends: spends}, nil
}

// giveBack gives everything back that was just taken, because a resource was closed meanwhile.
func (l *Limits) giveBack(spends limiter.Spends) error {
	l.joint.Release()
	for i, promise := range l.joint.Reserve() {
		if rate := l.resources[i].rate; rate != nil {
			rate.Settle(promise, 0)
		}
	}
	l.joint.GiveBack(spends)
	return ErrClosed
}

// retain keeps the resources open. It returns false if one is closed.
func retain(resources []*sharedResource) bool {
	for i, o := range resources {
		if !o.retain() {
			drop(resources[:i])
			return false
		}
	}
	return true
}

func drop(resources []*sharedResource) {
	for _, o := range resources {
		o.drop()
	}
}

// Charge charges each rate for permits that were used already, see [Rate.Charge], and each budget for an amount, see
// [Budget.Charge]: one number for each limit. Those of gauges are ignored. If the maximum debt of rates is exceeded, the
// error has a [DebtExceededError]. It names the first limit that has an error; the others were charged in full.
func (l *Limits) Charge(numbers ...float64) error {
	return l.each(numbers, func(_ int, o *sharedResource, part limiter.Part) error {
		if o.rate != nil {
			return o.counted(o.rate.Charge(part.N))
		}
		return o.budget.Charge(part.Amount)
	}, nil)
}

// Refund returns to each rate the permits that passed last, because they were not used, see [Rate.Refund]: one number for
// each limit. Those of gauges are ignored: release their permits. Budgets take an amount back while their period lasts, but
// only from what was acquired with these limits and is not released yet, the oldest first: so refund before releasing.
func (l *Limits) Refund(numbers ...float64) error {
	return l.each(numbers, func(i int, o *sharedResource, part limiter.Part) error {
		if o.rate != nil {
			o.rate.Refund(part.N)
		} else {
			l.refundable.Refund(i, o.budget, part.Amount)
		}
		return nil
	}, nil)
}

// each does something at each rate and budget, one number for each limit, and something else where the number is
// invalid. It returns the first error.
func (l *Limits) each(
	numbers []float64, do func(i int, o *sharedResource, part limiter.Part) error, invalid func(i int, o *sharedResource),
) error {
	if err := l.checkNumbers(len(numbers)); err != nil {
		return err
	}
	var first error
	for i, o := range l.resources {
		if o.gauge != nil {
			continue
		}
		part, err := o.part(numbers[i])
		if err == nil {
			err = do(i, o, part)
		} else if invalid != nil {
			invalid(i, o)
		}
		if err != nil && first == nil {
			first = fmt.Errorf("%q: %w", o.id, err)
		}
	}
	return first
}

func (l *Limits) checkNumbers(given int) error {
	if given == len(l.resources) {
		return nil
	}
	return badOption("numbers", "%d numbers for %d limits: pass one for each, in order", given, len(l.resources))
}

// RefusalError says that a limit refuses a request for permits of several. Nothing was taken from any of them.
type RefusalError struct {
	// Index is the index of the limit. If several refuse, it is the one whose permits will be available last. Budgets are
	// asked before rates and gauges.
	Index int
	// Resource is its name.
	Resource string
	// Burst is the maximum number of permits of it that can be available at once, if more are needed; otherwise 0.
	Burst      float64
	retryAfter time.Duration
	isBudget   bool
}

// RetryAfter returns when to try again: the permits of all limits will be available after this time, if nothing changes.
// It returns false if that is unknown, as for a budget, or never at the current capacity.
func (e *RefusalError) RetryAfter() (time.Duration, bool) {
	return max(e.retryAfter, 0), e.retryAfter != limiter.Unknown
}

func (e *RefusalError) Error() string {
	why := "no permit is free now"
	switch {
	case e.isBudget:
		why = "the allowance of this client does not cover the amount now"
	case e.Burst > 0:
		why = fmt.Sprintf("more than the %g that can be available at once", e.Burst)
	}
	return fmt.Sprintf("leaseway: %q: %s", e.Resource, why)
}

// Reservations are permits of several limits for work whose cost is known only at its end, or amounts if they are budgets.
// They have to be settled or cancelled: they keep their resources open, and until then all of their permits count as used.
type Reservations struct {
	limits   *Limits
	promises []limiter.Promise
	spends   limiter.Spends
	settled  atomic.Bool
}

// Reserved returns the number of permits taken of each limit, or the amount.
func (r *Reservations) Reserved() []float64 {
	parts := r.limits.joint.Parts()
	numbers := make([]float64, len(parts))
	for i := range parts {
		numbers[i] = float64(parts[i].N) + parts[i].Amount
	}
	return numbers
}

// Settle settles for what was used, one number for each limit. Each rate gets its unused permits back, or is charged for
// the excess, see [Reservation.Settle]; a budget its amount, see [BudgetReservation.Settle]. The permits of gauges are
// returned; their numbers are ignored. If the maximum debt of rates is exceeded, the error has a [DebtExceededError]. If a
// number is invalid, all that was reserved of that limit counts as used. The error names the first limit that has one; all
// are settled. Only the first call counts.
func (r *Reservations) Settle(used ...float64) error {
	l := r.limits
	if err := l.checkNumbers(len(used)); err != nil {
		return err
	}
	if !r.settled.CompareAndSwap(false, true) {
		return nil
	}
	defer drop(l.resources)
	l.joint.Release()
	return l.each(used, func(i int, o *sharedResource, part limiter.Part) error {
		if o.rate != nil {
			return o.counted(o.rate.Settle(r.promises[i], part.N))
		}
		o.budget.Settle(l.joint.Parts()[i].Amount, part.Amount, r.spends[i])
		return nil
	}, func(i int, o *sharedResource) {
		if o.rate != nil {
			o.rate.Settle(r.promises[i], r.promises[i].N)
		}
	})
}

// Cancel settles for no permits.
func (r *Reservations) Cancel() { _ = r.Settle(make([]float64, len(r.promises))...) }

// counted counts permits that were not charged. There is an error if there are any.
func (o *sharedResource) counted(uncharged uint64) error {
	if uncharged == 0 {
		return nil
	}
	o.client.stats.uncharged.Add(uncharged)
	return &DebtExceededError{toInt(uncharged), toInt(*o.settings.maxDebt)}
}
