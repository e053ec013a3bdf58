package leaseway_test

import (
	"context"
	"testing"
	"time"

	"github.com/leaseway/leaseway/src/go"
)

func TestRateIsHeldToItsLease(t *testing.T) {
	server := serve(t, []template{{glob: "searches", capacity: 200, lease: 60, refresh: 1}})
	client := dial(t, server.address)
	searches := must(client.Rate("searches"))
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if searches.Allow() {
		t.Error("a permit without a lease")
	}
	if err := searches.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	// A caller in a loop wants all of it within a few seconds.
	for searches.Limit() < 200 {
		if err := searches.Wait(ctx); err != nil {
			t.Fatal(err)
		}
	}
	start, passed := time.Now(), 0
	for time.Since(start) < 2*time.Second {
		if err := searches.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		passed++
	}
	bound := time.Since(start).Seconds()*200 + searches.Burst() + 1
	if float64(passed) > bound || float64(passed) < 380 {
		t.Errorf("%d permits in 2 s at 200 per second", passed)
	}
	if _, basis := searches.Capacity(); basis != leaseway.Leased {
		t.Errorf("basis %v", basis)
	}
	t.Logf("%d permits in 2 s; stats %+v", passed, client.Stats())
}
