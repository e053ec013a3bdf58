package limiter

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// budgetOf returns a budget with an allowance.
func budgetOf(allowed float64) *Budget {
	b := newBudget()
	b.Take(0, allowance(1, allowed, 1000))
	return b
}

func part(b *Budget, amount float64) Part { return Part{Budget: b, Amount: amount} }

func gaugeOf(capacity float64, n uint64) Part {
	gauge := ofGauge().Gauge
	gauge.SetUsable(capacity, time.Hour, 0)
	return Part{Gauge: gauge, N: n}
}

func expectSpent(t *testing.T, what string, spent map[*Budget]float64) {
	t.Helper()
	for b, amount := range spent {
		if b.Spent() != amount {
			t.Errorf("%s: %g spent, not %g", what, b.Spent(), amount)
		}
	}
}

func TestAmountsAndPermitsAreTakenAllOrNotAtAll(t *testing.T) {
	first, second, slots := budgetOf(10), budgetOf(4), gaugeOf(2, 1)
	joint := NewJointBudgets([]Part{part(first, 3), slots, part(second, 2)})
	for range 2 {
		if _, refusal := joint.TryAcquire(); refusal != nil {
			t.Fatal(*refusal)
		}
	}
	// Nothing is left of the second, and no slot: the budget is asked first.
	_, refusal := joint.TryAcquire()
	if refusal == nil || refusal.Index != 2 || refusal.RetryAfter != Unknown || refusal.Burst != 0 {
		t.Error(refusal)
	}
	expectSpent(t, "the second refuses", map[*Budget]float64{first: 6, second: 4})
	if wants, _ := first.Wants(0); wants != 3 {
		t.Error("what was given back is no demand", wants)
	}
	if wants, _ := second.Wants(0); wants != 2 {
		t.Error("what was refused is no demand", wants)
	}
	second.Take(0, allowance(2, 10, 1000))
	if _, refusal := joint.TryAcquire(); refusal == nil || refusal.Index != 1 {
		t.Error(refusal)
	}
	expectSpent(t, "the gauge refuses", map[*Budget]float64{first: 6, second: 4})
	joint.Release()
	spends, refusal := joint.TryAcquire()
	if refusal != nil {
		t.Fatal(*refusal)
	}
	expectSpent(t, "they pass", map[*Budget]float64{first: 9, second: 6})
	joint.GiveBack(spends)
	joint.GiveBack(spends)
	expectSpent(t, "given back once", map[*Budget]float64{first: 6, second: 4})
	second.Close()
	if _, refusal := joint.TryAcquire(); refusal == nil || !refusal.IsClosed {
		t.Error(refusal)
	}
	if _, err := joint.Acquire(context.Background()); err != ErrClosed {
		t.Error(err)
	}
	expectSpent(t, "the second is closed", map[*Budget]float64{first: 6})
}

func TestABudgetIsWaitedForWithNothingHeld(t *testing.T) {
	first, second, slots := budgetOf(0), budgetOf(5), gaugeOf(1, 1)
	joint := NewJointBudgets([]Part{part(first, 3), part(second, 2), slots})
	done := make(chan Spends)
	go func() {
		spends, err := joint.Acquire(context.Background())
		if err != nil {
			t.Error(err)
		}
		done <- spends
	}()
	eventually(t, first.HasWaiting)
	expectSpent(t, "waiting for the first", map[*Budget]float64{first: 0, second: 0})
	if !trySpend(second, 5) {
		t.Error("the second is held")
	}
	// The second refuses now. It is waited for instead, and the first is given back.
	first.Take(0, allowance(2, 3, 1000))
	eventually(t, second.HasWaiting)
	expectSpent(t, "waiting for the second", map[*Budget]float64{first: 0, second: 5})
	if wants, _ := second.Wants(0); wants != 2 {
		t.Error("waiting counts once", wants)
	}
	if wants, report := first.Wants(0); wants != 3 || report.Need != 3 {
		t.Error("the allowance of the first would be lost", wants)
	}
	if slots.Gauge.InUse() != 0 || !trySpend(first, 3) {
		t.Error("something is held")
	}
	second.Take(0, allowance(3, 7, 1000))
	eventually(t, first.HasWaiting)
	expectSpent(t, "waiting for the first again", map[*Budget]float64{first: 3, second: 5})
	if !slots.Gauge.TryAcquire(1) {
		t.Error("the slot is held")
	}
	first.Take(0, allowance(4, 6, 1000))
	eventually(t, func() bool { return first.Spent() == 6 && second.Spent() == 7 && slots.Gauge.Waiting() == 1 })
	slots.Gauge.Release(1)
	if spends := <-done; spends[0] == (SpentIn{}) || spends[1] == (SpentIn{}) || spends[2] != (SpentIn{}) {
		t.Error(spends)
	}
}

func TestAmountsAreGivenBackIfTheWaitForPermitsEnds(t *testing.T) {
	budget, slots := budgetOf(5), gaugeOf(1, 2)
	joint := NewJointBudgets([]Part{slots, part(budget, 5)})
	ctx, cancel := context.WithCancel(context.Background())
	failed := make(chan error)
	acquire := func(ctx context.Context) {
		_, err := joint.Acquire(ctx)
		failed <- err
	}
	go acquire(ctx)
	eventually(t, func() bool { return slots.Gauge.Waiting() > 0 })
	expectSpent(t, "waiting for permits", map[*Budget]float64{budget: 5})
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	expectSpent(t, "cancelled", map[*Budget]float64{budget: 0})
	go acquire(context.Background())
	eventually(t, func() bool { return slots.Gauge.Waiting() > 0 })
	slots.Gauge.Close()
	if err := <-failed; err != ErrClosed {
		t.Error(err)
	}
	expectSpent(t, "closed", map[*Budget]float64{budget: 0})
}

func TestABudgetOfWhichNothingIsNeededIsNotWaitedFor(t *testing.T) {
	without, first := newBudget(), budgetOf(5)
	joint := NewJointBudgets([]Part{part(without, 0), part(first, 1)})
	if _, refusal := joint.TryAcquire(); refusal != nil {
		t.Error(*refusal)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := joint.Acquire(ctx); err != nil || first.Spent() != 2 {
		t.Error(err, first.Spent())
	}
}

func TestPartsOfOneBudgetAddUp(t *testing.T) {
	budget := budgetOf(5)
	joint := NewJointBudgets([]Part{part(budget, 3), part(budget, 0), part(budget, 4)})
	if _, refusal := joint.TryAcquire(); refusal == nil || refusal.Index != 0 {
		t.Error(refusal)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := joint.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) || budget.Spent() != 0 {
		t.Error(err, budget.Spent())
	}
	budget.Take(0, allowance(2, 7, 1000))
	spends, err := joint.Acquire(context.Background())
	if err != nil || budget.Spent() != 7 {
		t.Fatal(err, budget.Spent())
	}
	budget.Settle(3, 1, spends[0])
	budget.Settle(0, 1, spends[1])
	budget.Settle(4, 0, spends[2])
	if budget.Spent() != 2 {
		t.Error(budget.Spent())
	}
	// No rounding returns more than was spent.
	tenths := NewJointBudgets([]Part{part(budget, 0.1), part(budget, 0.2)})
	for range 1000 {
		spends, refusal := tenths.TryAcquire()
		if refusal != nil {
			t.Fatal(*refusal)
		}
		budget.Settle(0.1, 0, spends[0])
		budget.Settle(0.2, 0, spends[1])
		if spent := budget.Spent(); spent < 2 || spent > 2+1e-9 {
			t.Fatal(spent)
		}
	}
}

func TestARefundComesFromTheOldestOperation(t *testing.T) {
	budget := budgetOf(10)
	joint := NewJointBudgets([]Part{part(budget, 4)})
	var refundable Refundable
	acquire := func() (end func()) {
		spends, refusal := joint.TryAcquire()
		if refusal != nil {
			t.Fatal(*refusal)
		}
		return refundable.Add(joint.Parts(), spends)
	}
	expect := func(what string, refund, spent float64) {
		t.Helper()
		refundable.Refund(0, budget, refund)
		expectSpent(t, what, map[*Budget]float64{budget: spent})
	}
	endOld := acquire()
	expect("a part", 0.5, 3.5)
	expect("the rest, and no more", 100, 0)
	endOld()
	endOld = acquire()
	budget.Take(0, allowance(2, 10, 2000))
	endNew := acquire()
	expect("of the earlier period", 3, 4)
	expect("of both periods", 2, 3)
	endOld()
	expect("of this period", 2, 1)
	endNew()
	expect("all have ended", 1, 1)
}

// Callers of several budgets and a gauge, in any order, are all served, and the allowances are not exceeded.
func TestManyCallersOfSeveralBudgetsAreServed(t *testing.T) {
	const callers, rounds = 8, 50
	budgets := []*Budget{budgetOf(0), budgetOf(0), budgetOf(0)}
	slots := gaugeOf(2, 1)
	var all sync.WaitGroup
	for n := range callers {
		all.Add(1)
		go func() {
			defer all.Done()
			rng := rand.New(rand.NewPCG(1, uint64(n)))
			for range rounds {
				parts := []Part{slots}
				for _, i := range rng.Perm(len(budgets)) {
					parts = append(parts, part(budgets[i], float64(rng.IntN(4))))
				}
				joint := NewJointBudgets(parts)
				wait, stop := context.WithTimeout(context.Background(), time.Duration(1+rng.IntN(20))*time.Millisecond)
				spends, err := joint.Acquire(wait)
				stop()
				if err != nil {
					if spends, err = joint.Acquire(context.Background()); err != nil {
						t.Error(err)
						return
					}
				}
				joint.Release()
				// Half of them are settled for nothing.
				if rng.IntN(2) == 0 {
					joint.GiveBack(spends)
				}
			}
		}()
	}
	done := make(chan struct{})
	go func() {
		all.Wait()
		close(done)
	}()
	timeout := time.After(time.Minute)
	allowances := make([]float64, len(budgets))
	for token := uint64(2); ; token++ {
		select {
		case <-done:
			if slots.Gauge.InUse() != 0 {
				t.Error(slots.Gauge.InUse())
			}
			return
		case <-timeout:
			t.Fatal("callers wait forever")
		case <-time.After(time.Millisecond):
		}
		at := int(token) % len(budgets)
		if spent := budgets[at].Spent(); spent > allowances[at] {
			t.Errorf("%g spent of an allowance of %g", spent, allowances[at])
		}
		allowances[at] += 3
		budgets[at].Take(0, allowance(token, allowances[at], 1000))
	}
}
