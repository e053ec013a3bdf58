package leaseway

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/leaseway/leaseway/src/go/internal/limiter"
)

// Budget is a handle of a budget: a resource of kind BUDGET, which is an amount that may be spent in each period.
//
// All clients together never spend more than the amount in a period. A client gets allowances in advance, so spending
// needs no request most of the time. What was spent cannot be returned: for work whose cost is known only at its end,
// reserve an amount and settle it. After the expiry of the lease nothing is spent, in any mode.
type Budget struct {
	Resource
	limiter *limiter.Budget
}

// TrySpend spends an amount if the allowance covers it now and no caller waits. If not, it takes nothing, and the client
// asks for a larger allowance in the background.
func (b *Budget) TrySpend(amount float64) bool {
	if checkAmount(amount) != nil {
		return false
	}
	_, err := b.limiter.TrySpend(amount, false)
	return err == nil
}

// Spend waits until the allowance covers an amount, and spends it. If the budget is spent, this waits for the next period.
// No caller that came later is served before: an amount above the whole budget blocks all callers behind it until its
// context ends. A wait whose context ends has spent nothing.
func (b *Budget) Spend(ctx context.Context, amount float64) error {
	if err := checkAmount(amount); err != nil {
		return err
	}
	_, err := b.limiter.Spend(ctx, amount)
	return err
}

// Reserve waits like [Budget.Spend], for work whose cost is known only at its end.
func (b *Budget) Reserve(ctx context.Context, amount float64) (*BudgetReservation, error) {
	if err := checkAmount(amount); err != nil {
		return nil, err
	}
	spentIn, err := b.limiter.Spend(ctx, amount)
	if err != nil {
		return nil, err
	}
	return b.keep(amount, spentIn)
}

// TryReserve reserves an amount if the allowance covers it now and no caller waits.
func (b *Budget) TryReserve(amount float64) (*BudgetReservation, bool) {
	if checkAmount(amount) != nil {
		return nil, false
	}
	spentIn, err := b.limiter.TrySpend(amount, false)
	if err != nil {
		return nil, false
	}
	reservation, err := b.keep(amount, spentIn)
	return reservation, err == nil
}

func (b *Budget) keep(amount float64, spentIn limiter.SpentIn) (*BudgetReservation, error) {
	if !b.opened.retain() {
		b.limiter.Settle(amount, 0, spentIn)
		return nil, ErrClosed
	}
	return &BudgetReservation{budget: b, amount: amount, spentIn: spentIn}, nil
}

// Charge spends an amount that was used already. What the allowance does not cover is owed: the next allowances pay it
// before any caller can spend, also those of a later period. The error is [ErrClosed] if the budget was closed.
func (b *Budget) Charge(amount float64) error {
	if err := checkAmount(amount); err != nil {
		return err
	}
	return b.limiter.Charge(amount)
}

// Owed returns the unpaid debt: what was charged and is not covered by an allowance yet. Closing the last handle drops it.
func (b *Budget) Owed() float64 { return b.limiter.Owed() }

// Left returns the remaining allowance: what may be spent without asking the server. It is 0 while something is owed.
func (b *Budget) Left() float64 { return b.limiter.Left() }

// Spent returns what this client has spent in the current period, since the budget was opened.
func (b *Budget) Spent() float64 { return b.limiter.Spent() }

// Period returns the start and the end of the current period. It returns false before the first lease, and for a budget
// that is spent once.
func (b *Budget) Period() (start, end time.Time, ok bool) {
	period := b.limiter.Period()
	if period == nil || period.End == math.MaxInt64 {
		return time.Time{}, time.Time{}, false
	}
	return time.Unix(period.Start, 0), time.Unix(period.End, 0), true
}

// BudgetReservation is an amount of a budget for work whose cost is known only at its end. It has to be settled or
// cancelled: it keeps its budget open, and until then all of it counts as spent.
type BudgetReservation struct {
	budget  *Budget
	amount  float64
	spentIn limiter.SpentIn
	settled atomic.Bool
}

// Reserved returns the amount reserved.
func (r *BudgetReservation) Reserved() float64 { return r.amount }

// Settle settles for the amount that was used. It takes back the rest, unless the period of the reservation has ended. It
// charges usage beyond the reservation, see [Budget.Charge]. If used is not an amount, there is an error, and all of the
// reservation is spent. Only the first call counts.
func (r *BudgetReservation) Settle(used float64) error {
	if !r.settled.CompareAndSwap(false, true) {
		return nil
	}
	defer r.budget.opened.drop()
	if err := checkAmount(used); err != nil {
		return err
	}
	r.budget.limiter.Settle(r.amount, used, r.spentIn)
	return nil
}

// Cancel settles for nothing used.
func (r *BudgetReservation) Cancel() { _ = r.Settle(0) }

func checkAmount(amount float64) error {
	// Also false for NaN.
	if amount >= 0 && amount <= limiter.MaxAmount {
		return nil
	}
	return badOption("amount", "%g is not a number from 0 to %g", amount, float64(limiter.MaxAmount))
}
