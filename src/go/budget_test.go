package leaseway_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/leaseway/leaseway/src/go"
	"github.com/leaseway/leaseway/src/go/internal/wire"
)

// openBudget opens a budget at a fake server, with an allowance of 10 in a period of an hour. The context ends after 20 s.
func openBudget(t *testing.T) (context.Context, *fake, *leaseway.Client, *leaseway.Budget) {
	server := startFake(t, 10)
	server.set(func() {
		server.budget = &wire.BudgetLease{PeriodStart: proto.Int64(3600), PeriodEnd: proto.Int64(7200)}
	})
	client := dial(t, server.address)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx, server, client, must(client.Budget("tokens"))
}

func TestABudgetSpendsItsAllowanceAndNoMore(t *testing.T) {
	ctx, _, client, tokens := openBudget(t)
	if _, _, known := tokens.Period(); known || tokens.TrySpend(1) {
		t.Error("before the first lease")
	}
	if err := tokens.Spend(ctx, 7); err != nil {
		t.Fatal(err)
	}
	start, end, known := tokens.Period()
	if !known || start.Unix() != 3600 || end.Sub(start) != time.Hour {
		t.Error(start, end)
	}
	if tokens.TrySpend(4) || !tokens.TrySpend(1) || tokens.Left() != 2 || tokens.Spent() != 8 {
		t.Error(tokens.Left(), tokens.Spent())
	}
	again := must(client.Budget("tokens"))
	if again.Spent() != 8 {
		t.Error("handles share one book", again.Spent())
	}
	for _, amount := range []float64{-1, math.NaN(), math.Inf(1), 1e16} {
		if tokens.TrySpend(amount) || tokens.Spend(ctx, amount) == nil {
			t.Error(amount)
		}
	}
	short, stop := context.WithTimeout(ctx, 50*time.Millisecond)
	defer stop()
	if err := tokens.Spend(short, 3); !errors.Is(err, context.DeadlineExceeded) || tokens.Spent() != 8 {
		t.Error(err, tokens.Spent())
	}
	if _, err := client.Rate("tokens"); !errors.As(err, new(*leaseway.KindError)) {
		t.Error(err)
	}
	tokens.Close()
	again.Close()
	if err := tokens.Spend(ctx, 0); err != leaseway.ErrClosed {
		t.Error(err)
	}
	if err := tokens.Charge(1); err != leaseway.ErrClosed {
		t.Error(err)
	}
}

func TestAReservationOfABudgetIsSettledOnce(t *testing.T) {
	ctx, fake, client, tokens := openBudget(t)
	if _, ok := tokens.TryReserve(1); ok {
		t.Error("before the first lease")
	}
	expect := func(what string, spent, owed, left float64) {
		t.Helper()
		if tokens.Spent() != spent || tokens.Owed() != owed || tokens.Left() != left {
			t.Errorf("%s: %g spent, %g owed, %g left", what, tokens.Spent(), tokens.Owed(), tokens.Left())
		}
	}
	reservation := must(tokens.Reserve(ctx, 6))
	expect("reserved", 6, 0, 4)
	if reservation.Reserved() != 6 {
		t.Error(reservation.Reserved())
	}
	if err := errors.Join(reservation.Settle(2), reservation.Settle(1)); err != nil {
		t.Error(err)
	}
	reservation.Cancel()
	expect("settled", 2, 0, 8)
	if _, ok := tokens.TryReserve(9); ok {
		t.Error("more than is left")
	}
	all, ok := tokens.TryReserve(8)
	if !ok {
		t.Fatal(tokens.Left())
	}
	all.Cancel()
	expect("cancelled", 2, 0, 8)
	invalid := must(tokens.Reserve(ctx, 1))
	if invalid.Settle(math.NaN()) == nil {
		t.Error("not a number")
	}
	invalid.Cancel()
	expect("spent in full", 3, 0, 7)
	if err := must(tokens.Reserve(ctx, 1)).Settle(5); err != nil {
		t.Error(err)
	}
	expect("charged", 8, 0, 2)
	if err := tokens.Charge(5); err != nil {
		t.Error(err)
	}
	expect("owed", 10, 3, 0)
	if stats := client.Stats().Resources[0]; stats.Kind != "budget" || *stats.Budget != (leaseway.BudgetStats{Spent: 10, Owed: 3}) {
		t.Error(stats, stats.Budget)
	}
	fake.set(func() { fake.capacity = 20 })
	eventually(t, "it is paid", func() bool { return tokens.Owed() == 0 })
	expect("paid", 13, 0, 7)
	for _, amount := range []float64{-1, math.NaN(), math.Inf(1), 1e16} {
		_, err := tokens.Reserve(ctx, amount)
		if _, ok := tokens.TryReserve(amount); ok || err == nil || tokens.Charge(amount) == nil {
			t.Error(amount)
		}
	}
	short, stop := context.WithTimeout(ctx, 50*time.Millisecond)
	defer stop()
	if _, err := tokens.Reserve(short, 8); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// What is settled after the handle was closed is part of the last report.
func TestAReservationKeepsItsBudgetOpen(t *testing.T) {
	ctx, fake, _, tokens := openBudget(t)
	reservation := must(tokens.Reserve(ctx, 6))
	tokens.Close()
	time.Sleep(50 * time.Millisecond)
	fake.set(func() {
		if len(fake.released) > 0 {
			t.Error("the lease was released")
		}
	})
	if err := reservation.Settle(2); err != nil {
		t.Error(err)
	}
	eventually(t, "the lease is released", func() bool {
		done := false
		fake.set(func() { done = len(fake.spent) == 1 && fake.spent[0].GetAmount() == 2 })
		return done
	})
	if _, err := tokens.Reserve(ctx, 0); err != leaseway.ErrClosed {
		t.Error(err)
	}
}

// While a close waits, here in the observer, another one must not release the lease with an earlier report.
func TestTheLastReportOfABudgetIsTrueIfClosesRace(t *testing.T) {
	for name, first := range map[string]func(*leaseway.Client, *leaseway.Budget){
		"client": func(client *leaseway.Client, _ *leaseway.Budget) { _ = client.Close() },
		"budget": func(_ *leaseway.Client, budget *leaseway.Budget) { budget.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			server := startFake(t, 10)
			server.set(func() {
				server.budget = &wire.BudgetLease{PeriodStart: proto.Int64(3600), PeriodEnd: proto.Int64(7200)}
			})
			closing, second := make(chan struct{}), make(chan struct{})
			isReleased := func() (is bool) {
				server.set(func() { is = len(server.released) > 0 })
				return is
			}
			client := dial(t, server.address, leaseway.WithLeaseObserver(func(change leaseway.LeaseChange) {
				if change.Capacity > 0 {
					return
				}
				close(closing)
				for end := time.Now().Add(300 * time.Millisecond); !isReleased() && time.Now().Before(end); {
					time.Sleep(time.Millisecond)
				}
			}))
			budget := must(client.Budget("tokens"))
			ready(t, client)
			go func() {
				defer close(second)
				<-closing
				_ = client.Close()
			}()
			if !budget.TrySpend(4) {
				t.Fatal(budget.Left())
			}
			first(client, budget)
			<-second
			server.set(func() {
				if len(server.spent) != 1 || server.spent[0].GetAmount() != 4 {
					t.Error(server.spent)
				}
			})
		})
	}
}
