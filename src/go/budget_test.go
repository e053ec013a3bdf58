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

func TestABudgetSpendsItsAllowanceAndNoMore(t *testing.T) {
	fake := startFake(t, 10)
	fake.set(func() { fake.budget = &wire.BudgetLease{PeriodStart: proto.Int64(3600), PeriodEnd: proto.Int64(7200)} })
	client := dial(t, fake.address)
	tokens := must(client.Budget("tokens"))
	if _, _, known := tokens.Period(); known || tokens.TrySpend(1) {
		t.Error("before the first lease")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
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
}
