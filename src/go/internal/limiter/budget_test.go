package limiter

import (
	"context"
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leaseway/leaseway/src/go/internal/session"
)

// allowanceUntil is the end of the leases of allowance.
const allowanceUntil = 10 * time.Second

func allowance(token uint64, capacity float64, period int64) *session.Lease {
	return &session.Lease{
		Capacity: capacity,
		End:      allowanceUntil,
		Refresh:  2 * time.Second,
		Token:    token,
		Budget:   &session.BudgetLease{Start: period, End: period + 1000},
	}
}

func startOver(token uint64) *session.Lease {
	lease := allowance(token, 0, 1000)
	lease.Budget.StartsOver = true
	return lease
}

func two() uint64 { return 2 }

func expectSpend(t *testing.T, b *BudgetBook, now time.Duration, amount float64, expected bool) {
	t.Helper()
	if b.Spend(now, amount) != expected {
		t.Fatalf("spending %g at %v with %g left: %v", amount, now, b.Left(now), !expected)
	}
}

func TestAnAllowanceIsNeverExceeded(t *testing.T) {
	b := NewBudgetBook(0, 1)
	expectSpend(t, &b, 0, 1, false)
	b.Take(allowance(1, 10, 1000), two)
	for _, spend := range []struct {
		amount   float64
		expected bool
	}{{7, true}, {4, false}, {3, true}, {0.0001, false}, {0, true}} {
		expectSpend(t, &b, 0, spend.amount, spend.expected)
	}
	b.Take(allowance(2, 12, 1000), two)
	if b.Left(allowanceUntil-1) != 2 || b.Left(allowanceUntil) != 0 {
		t.Error(b.Left(allowanceUntil-1), b.Left(allowanceUntil))
	}
	expectSpend(t, &b, allowanceUntil, 1, false)
	b.Take(allowance(3, 5, 1000), two)
	if b.Left(0) != 0 || b.Spent() != 10 {
		t.Error("it has spent more than a smaller allowance", b.Left(0), b.Spent())
	}
	expectSpend(t, &b, 0, 1, false)
}

func TestAnotherPeriodAndAnotherIncarnationBeginWithNothingSpent(t *testing.T) {
	b := NewBudgetBook(0, 1)
	if _, report := b.Wants(0); *report != (session.BudgetUse{Incarnation: 1}) {
		t.Error(*report)
	}
	b.Take(allowance(1, 10, 1000), two)
	expectSpend(t, &b, 0, 7, true)
	b.Take(allowance(2, 4, 2000), two)
	if _, report := b.Wants(0); *report != (session.BudgetUse{Period: 2000, Incarnation: 1, Token: 2}) {
		t.Error(*report)
	}
	expectSpend(t, &b, 0, 5, false)
	expectSpend(t, &b, 0, 3, true)
	// The same lease again changes nothing.
	if b.Take(allowance(2, 4, 2000), two) || b.Left(0) != 1 {
		t.Error(b.Left(0))
	}
	if !b.Take(startOver(3), two) {
		t.Error("it does not ask at once")
	}
	if _, report := b.Wants(0); report.Spent != 0 || report.Incarnation != 2 || report.Token != 0 {
		t.Error(*report)
	}
	expectSpend(t, &b, 0, 1, false)
	b.Take(allowance(4, 5, 1000), two)
	expectSpend(t, &b, 0, 5, true)
}

func TestWantsFollowTheRateAndTheWaitingCallers(t *testing.T) {
	b := NewBudgetBook(0, 1)
	b.SetWaiting(50, 20)
	if wants, report := b.Wants(time.Second); wants != 50 || report.Need != 20 || !report.IsShort {
		t.Error(wants, *report)
	}
	b.SetWaiting(0, 0)
	b.Take(allowance(1, 1e6, 1000), two)
	for second := 2; second < 60; second++ {
		expectSpend(t, &b, 0, 100, true)
		b.Wants(time.Duration(second) * time.Second)
	}
	if wants, _ := b.Wants(59 * time.Second); wants != 400 {
		t.Error("two intervals of 2 s", wants)
	}
	if wants, _ := b.Wants(60 * time.Second); wants < 300 || wants >= 350 {
		t.Error("it has spent nothing for a second", wants)
	}
}

func TestAmountsThatWereRefusedAreAskedForUntilTheyAreSpent(t *testing.T) {
	b := NewBudgetBook(0, 1)
	b.Refuse(0, 20)
	b.Refuse(time.Second, 5)
	if wants, report := b.Wants(time.Second); wants != 20 || report.Need != 20 || !report.IsShort {
		t.Error(wants, *report)
	}
	if wants, _ := b.Wants(61 * time.Second); wants != 0 {
		t.Error("too long ago", wants)
	}
	b = NewBudgetBook(0, 1)
	b.Refuse(0, 20)
	b.Take(allowance(1, 30, 1000), two)
	if b.IsShort(0) {
		t.Error("it is covered")
	}
	for _, spend := range []struct{ amount, need float64 }{{5, 20}, {20, 0}} {
		expectSpend(t, &b, 0, spend.amount, true)
		if _, report := b.Wants(0); report.Need != spend.need {
			t.Error(*report)
		}
	}
}

func TestSumsOfAmountsAreExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	units := func(amount float64) *big.Int {
		scaled, _ := new(big.Float).SetMantExp(big.NewFloat(amount), 52).Int(nil)
		if amount < 1 && amount*unitsPerOne != math.Trunc(amount*unitsPerOne) {
			scaled.Add(scaled, big.NewInt(1))
		}
		return scaled
	}
	for range 5_000 {
		exact, total := new(big.Int), sum{}
		for range 10 {
			amount := rng.Float64() * math.Pow(10, float64(rng.IntN(31)-16))
			exact.Add(exact, units(amount))
			total = total.plus(sumOf(amount))
		}
		if total.units.big().Cmp(exact) != 0 {
			t.Fatalf("%v, not %v", total.units.big(), exact)
		}
		if total.less(sumOf(total.floor())) || sumOf(total.ceil()).less(total) {
			t.Fatalf("%v between %g and %g", exact, total.floor(), total.ceil())
		}
	}
	b := NewBudgetBook(0, 1)
	b.Take(allowance(1, 1, 1000), two)
	spent := 0
	for b.Spend(0, 0.0001) {
		spent++
	}
	if spent < 9_999 || spent > 10_000 {
		t.Error("ten-thousandths of 1:", spent)
	}
}

func newBudget() *Budget { return NewBudget(func() time.Duration { return 0 }, func() {}) }

func TestWaitingCallersAreServedFirstComeFirstServed(t *testing.T) {
	b := newBudget()
	var order []float64
	var mu sync.Mutex
	var all sync.WaitGroup
	for i, amount := range []float64{10, 1, 2} {
		all.Add(1)
		go func() {
			defer all.Done()
			if err := b.Spend(context.Background(), amount); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			order = append(order, amount)
		}()
		for queued := 0; queued <= i; {
			b.mu.Lock()
			queued = len(b.spenders)
			b.mu.Unlock()
		}
	}
	if wants, report := b.Wants(0); wants != 13 || report.Need != 10 {
		t.Error(wants, *report)
	}
	b.Take(0, allowance(1, 9, 1000))
	if b.TrySpend(1) || b.Spent() != 0 {
		t.Error("a later caller was served before one that waits")
	}
	b.Take(0, allowance(2, 12, 1000))
	if b.Spent() != 11 || !b.HasWaiting() {
		t.Error(b.Spent())
	}
	b.Take(0, allowance(3, 13, 1000))
	all.Wait()
	if len(order) != 3 || b.HasWaiting() || b.Left() != 0 {
		t.Error(order, b.Left())
	}
	if wants, report := b.Wants(0); wants != 0 || report.Need != 0 {
		t.Error(wants, *report)
	}
}

func TestAWaitThatEndsHasSpentNothing(t *testing.T) {
	b := newBudget()
	b.Take(0, allowance(1, 5, 1000))
	ctx, cancel := context.WithCancel(context.Background())
	failed := make(chan error)
	go func() { failed <- b.Spend(ctx, 6) }()
	for !b.HasWaiting() {
	}
	served := make(chan error)
	go func() { served <- b.Spend(context.Background(), 5) }()
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	// The caller behind it is served then.
	if err := <-served; err != nil || b.Spent() != 5 {
		t.Error(err, b.Spent())
	}
	if err := b.Spend(ctx, 0); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	go func() { failed <- b.Spend(context.Background(), 1) }()
	for !b.HasWaiting() {
	}
	b.Close()
	if err := <-failed; err != ErrClosed {
		t.Error(err)
	}
	if err := b.Spend(context.Background(), 0); err != ErrClosed || b.TrySpend(0) {
		t.Error(err)
	}
}

func TestManySpendersDoNotExceedTheAllowance(t *testing.T) {
	b := newBudget()
	const allowed = 1000
	var spent atomic.Int64
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for range 20 {
		all.Add(1)
		go func() {
			defer all.Done()
			for {
				wait, stop := context.WithTimeout(ctx, time.Millisecond)
				if b.Spend(wait, 3) == nil || b.TrySpend(3) {
					spent.Add(3)
				}
				stop()
				if ctx.Err() != nil {
					return
				}
			}
		}()
	}
	for step := uint64(1); step <= 10; step++ {
		b.Take(0, allowance(step, allowed*float64(step)/10, 1000))
		time.Sleep(2 * time.Millisecond)
	}
	for b.Left() >= 3 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	all.Wait()
	if float64(spent.Load()) != b.Spent() || spent.Load() > allowed {
		t.Errorf("%d spent by callers, %g in the book", spent.Load(), b.Spent())
	}
}
