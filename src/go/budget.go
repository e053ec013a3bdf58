package leaseway

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/leaseway/leaseway/src/go/internal/limiter"
)

// Budget is a handle of a budget: a resource of kind BUDGET, which is an amount that may be spent in each period.
//
// All clients together never spend more than the amount in a period. A client gets allowances in advance, so spending
// needs no request most of the time. What was spent cannot be returned. After the expiry of the lease nothing is spent,
// in any mode.
type Budget struct {
	Resource
	limiter *limiter.Budget
}

// TrySpend spends an amount if the allowance covers it now and no caller waits. If not, it takes nothing, and the client
// asks for a larger allowance in the background.
func (b *Budget) TrySpend(amount float64) bool {
	return checkAmount(amount) == nil && b.limiter.TrySpend(amount)
}

// Spend waits until the allowance covers an amount, and spends it. No caller that came later is served before. If the
// budget is spent, this waits for the next period. A wait whose context ends has spent nothing.
func (b *Budget) Spend(ctx context.Context, amount float64) error {
	if err := checkAmount(amount); err != nil {
		return err
	}
	return b.limiter.Spend(ctx, amount)
}

// Left returns what may be spent now, without asking.
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

func checkAmount(amount float64) error {
	// Also false for NaN.
	if amount >= 0 && amount <= limiter.MaxAmount {
		return nil
	}
	return fmt.Errorf("leaseway: %g is not an amount: it must be a number from 0 to %g", amount, float64(limiter.MaxAmount))
}
