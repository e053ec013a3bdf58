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
	b.Take(0, allowance(1, 10, 1000), two)
	for _, spend := range []struct {
		amount   float64
		expected bool
	}{{7, true}, {4, false}, {3, true}, {0.0001, false}, {0, true}} {
		expectSpend(t, &b, 0, spend.amount, spend.expected)
	}
	b.Take(0, allowance(2, 12, 1000), two)
	if b.Left(allowanceUntil-1) != 2 || b.Left(allowanceUntil) != 0 {
		t.Error(b.Left(allowanceUntil-1), b.Left(allowanceUntil))
	}
	expectSpend(t, &b, allowanceUntil, 1, false)
	expectSpend(t, &b, allowanceUntil, 0, false)
	b.Take(0, allowance(3, 5, 1000), two)
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
	b.Take(0, allowance(1, 10, 1000), two)
	expectSpend(t, &b, 0, 7, true)
	b.Take(0, allowance(2, 4, 2000), two)
	if _, report := b.Wants(0); *report != (session.BudgetUse{Period: 2000, Incarnation: 1, Token: 2}) {
		t.Error(*report)
	}
	expectSpend(t, &b, 0, 5, false)
	expectSpend(t, &b, 0, 3, true)
	// The same lease again changes nothing.
	if b.Take(0, allowance(2, 4, 2000), two) || b.Left(0) != 1 {
		t.Error(b.Left(0))
	}
	if !b.Take(0, startOver(3), two) {
		t.Error("it does not ask at once")
	}
	if _, report := b.Wants(0); report.Spent != 0 || report.Incarnation != 2 || report.Token != 0 {
		t.Error(*report)
	}
	expectSpend(t, &b, 0, 1, false)
	b.Take(0, allowance(4, 5, 1000), two)
	expectSpend(t, &b, 0, 5, true)
}

func expectBook(t *testing.T, what string, b *BudgetBook, now time.Duration, spent, owed, left float64) {
	t.Helper()
	if b.Spent() != spent || b.Owed() != owed || b.Left(now) != left {
		t.Errorf("%s: %g spent, not %g; %g owed, not %g; %g left, not %g",
			what, b.Spent(), spent, b.Owed(), owed, b.Left(now), left)
	}
}

func TestAnAmountIsTakenBackOnlyWhereItWasSpent(t *testing.T) {
	b := NewBudgetBook(0, 1)
	b.Take(0, allowance(1, 10, 1000), two)
	expectSpend(t, &b, 0, 7, true)
	in := b.SpendsIn()
	b.Settle(0, 7, 2, in)
	expectBook(t, "unused", &b, 0, 2, 0, 8)
	b.Settle(2*allowanceUntil, 1, 0, in)
	expectBook(t, "after the end of the lease", &b, 2*allowanceUntil, 1, 0, 0)
	b.Take(0, allowance(2, 4, 2000), two)
	expectSpend(t, &b, 0, 1, true)
	b.Settle(0, 1, 0, in)
	expectBook(t, "another period", &b, 0, 1, 0, 3)
	b.Settle(0, 1, 3, in)
	expectBook(t, "an excess in another period", &b, 0, 3, 0, 1)
	in = b.SpendsIn()
	again := startOver(3)
	again.Budget.Start = 2000
	b.Take(0, again, two)
	b.Take(0, allowance(4, 4, 2000), two)
	expectSpend(t, &b, 0, 1, true)
	b.Settle(0, 1, 0, in)
	expectBook(t, "another incarnation", &b, 0, 1, 0, 3)
	b.Settle(0, 1, 0, b.SpendsIn())
	expectBook(t, "this incarnation", &b, 0, 0, 0, 4)
}

func TestOwedAmountsArePaidBeforeAnythingIsSpent(t *testing.T) {
	b := NewBudgetBook(0, 1)
	b.Charge(0, 3)
	if wants, report := b.Wants(0); wants != 3 || report.Spent != 0 || !report.IsShort {
		t.Error(wants, *report)
	}
	b.Take(0, allowance(1, 2, 1000), two)
	expectBook(t, "a small allowance", &b, 0, 2, 1, 0)
	b.Take(0, allowance(2, 10, 1000), two)
	expectBook(t, "a larger allowance", &b, 0, 3, 0, 7)
	expectSpend(t, &b, 0, 6, true)
	in := b.SpendsIn()
	b.Settle(0, 1, 5, in)
	expectBook(t, "an excess", &b, 0, 10, 3, 0)
	expectSpend(t, &b, 0, 0, false)
	b.Settle(0, 5, 0, in)
	expectBook(t, "unused", &b, 0, 8, 0, 2)
	b.Charge(allowanceUntil, 1)
	expectBook(t, "after the end of the lease", &b, 0, 8, 1, 0)
	b.Take(0, allowance(3, 4, 2000), two)
	expectBook(t, "the next period", &b, 0, 1, 0, 3)
}

// A book owes something although its allowance is not spent if the lease has ended before the charge.
func TestNothingIsLeftWhileSomethingIsOwed(t *testing.T) {
	b := NewBudgetBook(0, 1)
	b.Take(0, allowance(1, 10, 1000), two)
	b.Charge(allowanceUntil, 3)
	if b.Left(0) != 0 || !b.IsShort(0) || b.Spend(0, 1) {
		t.Error(b.Left(0), b.IsShort(0))
	}
	b.Wants(0)
	expectBook(t, "paid with the next request", &b, 0, 3, 0, 7)
	if b.IsShort(0) {
		t.Error("nothing is owed")
	}
}

func TestTakingBackLowersTheRateOfSpending(t *testing.T) {
	b := NewBudgetBook(0, 1)
	b.Take(0, allowance(1, 1e6, 1000), two)
	expectSpend(t, &b, 0, 1000, true)
	before, _ := b.Wants(time.Second)
	b.Settle(0, 1000, 0, b.SpendsIn())
	if after, _ := b.Wants(2 * time.Second); before < 100 || after != 0 {
		t.Error(before, after)
	}
}

func TestWantsFollowTheRateAndTheWaitingCallers(t *testing.T) {
	b := NewBudgetBook(0, 1)
	b.SetWaiting(50, 20)
	if wants, report := b.Wants(time.Second); wants != 50 || report.Need != 20 || !report.IsShort {
		t.Error(wants, *report)
	}
	b.SetWaiting(0, 0)
	b.Take(0, allowance(1, 1e6, 1000), two)
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
	b.Take(0, allowance(1, 30, 1000), two)
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
	b.Take(0, allowance(1, 1, 1000), two)
	spent := 0
	for b.Spend(0, 0.0001) {
		spent++
	}
	if spent < 9_999 || spent > 10_000 {
		t.Error("ten-thousandths of 1:", spent)
	}
}

func newBudget() *Budget { return NewBudget(func() time.Duration { return 0 }, func() {}) }

func spend(ctx context.Context, b *Budget, amount float64) error {
	_, err := b.Spend(ctx, amount)
	return err
}

func trySpend(b *Budget, amount float64) bool {
	_, err := b.TrySpend(amount, false)
	return err == nil
}

func TestWaitingCallersAreServedFirstComeFirstServed(t *testing.T) {
	b := newBudget()
	var order []float64
	var mu sync.Mutex
	var all sync.WaitGroup
	for i, amount := range []float64{10, 1, 2} {
		all.Add(1)
		go func() {
			defer all.Done()
			if _, err := b.Spend(context.Background(), amount); err != nil {
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
	if trySpend(b, 1) || b.Spent() != 0 {
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
	go func() { failed <- spend(ctx, b, 6) }()
	eventually(t, b.HasWaiting)
	served := make(chan error)
	go func() { served <- spend(context.Background(), b, 5) }()
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	// The caller behind it is served then.
	if err := <-served; err != nil || b.Spent() != 5 {
		t.Error(err, b.Spent())
	}
	if err := spend(ctx, b, 0); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	go func() { failed <- spend(context.Background(), b, 1) }()
	eventually(t, b.HasWaiting)
	b.Close()
	if err := <-failed; err != ErrClosed {
		t.Error(err)
	}
	if err := spend(context.Background(), b, 0); err != ErrClosed || trySpend(b, 0) {
		t.Error(err)
	}
}

func TestSettlingServesWaitingCallers(t *testing.T) {
	b := newBudget()
	b.Take(0, allowance(1, 10, 1000))
	in, err := b.TrySpend(10, false)
	if err != nil {
		t.Fatal(err)
	}
	type result struct {
		in  SpentIn
		err error
	}
	served := make(chan result)
	go func() {
		in, err := b.Spend(context.Background(), 4)
		served <- result{in, err}
	}()
	eventually(t, b.HasWaiting)
	b.Settle(10, 7, in)
	if !b.HasWaiting() || b.Spent() != 7 {
		t.Error("it was served too early", b.Spent())
	}
	b.Settle(7, 6, in)
	if got := <-served; got.err != nil || got.in != in || b.Spent() != 10 {
		t.Error(got, b.Spent())
	}
	// Of a caller that waited, an amount is taken back where it was spent, too.
	b.Settle(4, 0, in)
	b.Charge(5)
	if b.Spent() != 10 || b.Owed() != 1 || b.Left() != 0 {
		t.Error(b.Spent(), b.Owed(), b.Left())
	}
}

func TestAnAmountGivenBackIsDemand(t *testing.T) {
	b := newBudget()
	b.Take(0, allowance(1, 10, 1000))
	in, _ := b.TrySpend(8, true)
	b.GiveBack(8, in)
	if wants, report := b.Wants(0); wants != 8 || report.Need != 8 || report.Spent != 0 || report.IsShort {
		t.Error(wants, *report)
	}
	if _, err := b.TrySpend(20, true); err != errNotCovered {
		t.Error(err)
	}
	if wants, _ := b.Wants(0); wants != 8 {
		t.Error("the demand of a caller that will wait was noted", wants)
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
				if spend(wait, b, 3) == nil || trySpend(b, 3) {
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
