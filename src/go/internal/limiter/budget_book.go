package limiter

import (
	"math"
	"time"

	"github.com/leaseway/leaseway/src/go/internal/session"
)

// BudgetBook is the book of a budget: what one incarnation of a client has spent, and how far its allowance goes.
//
// The lease of a budget is a cumulative allowance for the period. The book adds up exactly what its incarnation has spent.
// It never spends beyond the allowance, after the end of the lease, or in another period.
//
// Amounts that are charged after they were used are owed as far as the allowance does not cover them. The next allowances
// pay them before anything else is spent. An amount that is not needed can be taken back in the period and by the
// incarnation that spent it, because only there the next report lowers the sum.
type BudgetBook struct {
	incarnation uint64
	// period is nil before the first lease.
	period *session.BudgetLease
	// token names the lease that gave the allowance, and seen the lease that was taken last; 0 without one.
	token, seen uint64
	allowance   sum
	// until is the end of the lease.
	until time.Duration
	spent sum
	// owed was charged, and is not covered by an allowance yet.
	owed sum
	// waiting is what callers wait for, and first what the first of them waits for.
	waiting, first float64
	// refused was refused to callers that do not wait, and refusedAt says when.
	refused   float64
	refusedAt time.Duration
	// refresh is the refresh interval of the lease, and rate the rate of spending per second.
	refresh time.Duration
	rate    float64
	// sampledAt is when the rate was last updated, and sampled what had been spent then.
	sampledAt time.Duration
	sampled   sum
	// wanted is the demand that was last reported.
	wanted float64
}

// SpentIn is the incarnation and the period in which an amount was spent. It can be taken back only there.
type SpentIn struct {
	incarnation uint64
	// period is the start of the period. It is 0 before the first lease, when nothing can be spent.
	period int64
}

const (
	// rateSeconds is the time over which the rate of spending is averaged.
	rateSeconds = 5.0

	// minSampleSeconds is the shortest time over which the rate is measured.
	minSampleSeconds = 0.1

	// refusedFor is how long an amount that was refused is asked for, because callers that do not wait may try again.
	refusedFor = time.Minute
)

// NewBudgetBook returns an empty book. incarnation is a random number, not 0.
func NewBudgetBook(now time.Duration, incarnation uint64) BudgetBook {
	return BudgetBook{incarnation: incarnation, refresh: 5 * time.Second, sampledAt: now}
}

// Take takes the newest lease of the session, unless it is known already. fresh returns the next incarnation, for a client
// that is told to start over. Take returns whether the client should ask again at once.
func (b *BudgetBook) Take(now time.Duration, lease *session.Lease, fresh func() uint64) bool {
	if lease.Budget == nil || lease.Token == 0 || lease.Token == b.seen {
		return false
	}
	startsOver := lease.Budget.StartsOver
	if startsOver || b.period == nil || b.period.Start != lease.Budget.Start {
		b.spent, b.sampled = sum{}, sum{}
	}
	b.seen, b.period, b.refresh = lease.Token, lease.Budget, lease.Refresh
	if startsOver {
		b.incarnation = fresh()
		b.token, b.allowance, b.until = 0, sum{}, 0
		return true
	}
	b.token, b.allowance, b.until = lease.Token, sumOf(min(lease.Capacity, MaxAmount)), lease.End
	b.pay(now)
	return false
}

// pay pays what is owed, as far as the allowance covers it.
func (b *BudgetBook) pay(now time.Duration) {
	paid := b.owed.atMost(b.uncommitted(now))
	b.owed, b.spent = b.owed.minus(paid), b.spent.plus(paid)
}

// uncommitted returns the part of the allowance that is not spent. It is 0 after the end of the lease.
func (b *BudgetBook) uncommitted(now time.Duration) sum {
	if !b.isLive(now) {
		return sum{}
	}
	return b.allowance.minus(b.spent)
}

func (b *BudgetBook) isLive(now time.Duration) bool { return now < b.until }

// Spend spends an amount from 0 to MaxAmount if the allowance covers all of it and nothing is owed.
func (b *BudgetBook) Spend(now time.Duration, amount float64) bool {
	if !b.isLive(now) || !b.owed.isZero() || b.uncommitted(now).less(sumOf(amount)) {
		return false
	}
	b.spent = b.spent.plus(sumOf(amount))
	if amount >= b.refused {
		b.refused = 0
	}
	return true
}

// SpendsIn returns where amounts are spent now.
func (b *BudgetBook) SpendsIn() SpentIn {
	in := SpentIn{incarnation: b.incarnation}
	if b.period != nil {
		in.period = b.period.Start
	}
	return in
}

// Settle says that of an amount spent in advance this much was used. It takes back the rest, unless the period or the
// incarnation has changed since. It charges what exceeds the reserved amount.
func (b *BudgetBook) Settle(now time.Duration, reserved, used float64, in SpentIn) {
	switch {
	case used >= reserved:
		b.owed = b.owed.plus(sumOf(used).minus(sumOf(reserved)))
	case in == b.SpendsIn():
		b.spent = b.spent.minus(sumOf(reserved).minus(sumOf(used)))
	}
	b.pay(now)
}

// Charge spends an amount that was used already. What the allowance does not cover is owed.
func (b *BudgetBook) Charge(now time.Duration, amount float64) {
	b.owed = b.owed.plus(sumOf(amount))
	b.pay(now)
}

// Owed returns what was charged and is not covered by an allowance yet.
func (b *BudgetBook) Owed() float64 { return b.owed.ceil() }

// Refuse notes an amount that was refused to a caller that does not wait, so that it is asked for.
func (b *BudgetBook) Refuse(now time.Duration, amount float64) {
	b.refused, b.refusedAt = max(b.refusedLately(now), amount), now
}

func (b *BudgetBook) refusedLately(now time.Duration) float64 {
	if now-b.refusedAt < refusedFor {
		return b.refused
	}
	return 0
}

// Left returns what may be spent now, without asking. It is 0 while something is owed.
func (b *BudgetBook) Left(now time.Duration) float64 {
	if !b.owed.isZero() {
		return 0
	}
	return b.uncommitted(now).floor()
}

// Spent returns what this incarnation has spent in the current period.
func (b *BudgetBook) Spent() float64 { return b.spent.ceil() }

// Period returns the current period, or nil before the first lease.
func (b *BudgetBook) Period() *session.BudgetLease { return b.period }

// SetWaiting sets what callers wait for: in total, and the first of them.
func (b *BudgetBook) SetWaiting(total, first float64) { b.waiting, b.first = total, first }

// IsShort returns whether callers wait, or something is owed, or less is left than was refused or than half of what was
// last wanted.
func (b *BudgetBook) IsShort(now time.Duration) bool {
	left := b.Left(now)
	return b.waiting > 0 || !b.owed.isZero() || left < b.refusedLately(now) || b.rate > 0 && left < b.wanted/2
}

// Close ends the allowance.
func (b *BudgetBook) Close() { b.until = 0 }

// Wants returns the demand and the report. The demand is what is spent in two refresh intervals, what callers wait for, what
// was refused, and what is owed.
func (b *BudgetBook) Wants(now time.Duration) (float64, *session.BudgetUse) {
	b.pay(now)
	if elapsed := (now - b.sampledAt).Seconds(); elapsed >= minSampleSeconds {
		// One of the two is 0. More may have been taken back than spent.
		recent := (b.spent.minus(b.sampled).ceil() - b.sampled.minus(b.spent).ceil()) / elapsed
		b.rate += (recent - b.rate) * (1 - math.Exp(-elapsed/rateSeconds))
		if b.rate < 1e-6 {
			b.rate = 0
		}
		b.sampledAt, b.sampled = now, b.spent
	}
	refused := b.refusedLately(now)
	b.wanted = min(math.Ceil(b.rate*2*b.refresh.Seconds()+b.waiting+refused+b.owed.ceil()), MaxAmount)
	report := &session.BudgetUse{
		Spent:       b.spent.ceil(),
		Incarnation: b.incarnation,
		Need:        b.first,
		Token:       b.token,
		IsShort:     b.IsShort(now),
	}
	if b.waiting == 0 {
		report.Need = refused
	}
	if b.period != nil {
		report.Period = b.period.Start
	}
	return b.wanted, report
}
