package leaseway_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leaseway/leaseway/src/go"
)

// picks returns the names of the next picks; - stands for none.
func picks(b *leaseway.Balancer[string], count int) string {
	var picked strings.Builder
	for range count {
		if pick, ok := b.Pick(); ok {
			picked.WriteString(pick.Backend())
		} else {
			picked.WriteString("-")
		}
	}
	return picked.String()
}

// Package internal/balancer has the tests of the schedule, of back-offs and pauses.
func TestBalancersPickTheirBackends(t *testing.T) {
	weighted := leaseway.NewWeightedBalancer([]leaseway.Weighted[string]{{"a", 5}, {"b", 1}, {"x", 0}, {"c", 1}})
	if picked := picks(weighted, 14); picked != "aabacaaaabacaa" {
		t.Error(picked)
	}
	leased := leaseway.NewLeasedBalancer([]string{"a", "b"}, leaseway.WithRetry(time.Hour))
	if _, ok := leased.Pick(); ok {
		t.Error("a pick without a lease")
	}
	leased.SetCapacity(0, 7)
	leased.SetCapacity(1, 3)
	if picked := picks(leased, 10); picked != "abaaabaaba" {
		t.Error(picked)
	}
	pick, ok := leased.PickSticky(1)
	if !ok || pick.Index() != 1 || pick.Backend() != "b" {
		t.Error(pick, ok)
	}
	pick.Failed()
	if at, ok := leased.NextRetry(); !ok || time.Until(at) > time.Hour || time.Until(at) < 59*time.Minute {
		t.Error(at, ok)
	}
	if picked := picks(leased, 3); picked != "aaa" || leased.IsEnabled(1) {
		t.Error(picked)
	}
	leased.Pause(0)
	if _, ok := leased.PickWhere(func(string) bool { return true }); ok {
		t.Error("a pick of a paused backend")
	}
	leased.Resume(0)
	if pick, ok := leased.PickWhere(func(name string) bool { return name == "a" }); !ok || pick.Index() != 0 {
		t.Error(pick, ok)
	}
	leased.SetCapacity(0, math.NaN())
	if leased.IsEnabled(0) || len(leased.Backends()) != 2 {
		t.Error("NaN is no capacity")
	}
	leased.SetWeight(0, 1)
	if !leased.IsEnabled(0) {
		t.Error("a weight is a share")
	}
}

func TestAFailureAfterTheBackOffBeginsAnother(t *testing.T) {
	now := time.Now()
	balancer := leaseway.NewWeightedBalancer([]leaseway.Weighted[string]{{"a", 1}},
		leaseway.WithRetry(time.Second), leaseway.WithClock(func() time.Time { return now }))
	balancer.Failed(0)
	now = now.Add(2 * time.Second)
	balancer.Failed(0)
	if at, ok := balancer.NextRetry(); !ok || !at.Equal(now.Add(time.Second)) || balancer.IsEnabled(0) {
		t.Error(at, ok)
	}
}

func TestAPanicInAPredicateChangesNothing(t *testing.T) {
	b := leaseway.NewWeightedBalancer([]leaseway.Weighted[string]{{"a", 2}, {"b", 1}})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		b.PickWhere(func(name string) bool {
			if name == "b" {
				panic("on purpose")
			}
			return false
		})
	}()
	if picked := picks(b, 6); picked != "abaaba" {
		t.Error(picked)
	}
}

func TestConcurrentPicksKeepExactShares(t *testing.T) {
	b := leaseway.NewWeightedBalancer([]leaseway.Weighted[string]{{"a", 7}, {"b", 3}})
	var mu sync.Mutex
	var all sync.WaitGroup
	counts := map[string]int{}
	for range 4 {
		all.Add(1)
		go func() {
			defer all.Done()
			picked := picks(b, 1000)
			mu.Lock()
			defer mu.Unlock()
			for _, name := range picked {
				counts[string(name)]++
			}
		}()
	}
	all.Wait()
	if counts["a"] != 2800 || counts["b"] != 1200 {
		t.Error(counts)
	}
}

// turn waits for a pick, and returns its name.
func turn(t *testing.T, b *leaseway.Balanced) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	pick, err := b.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(pick.Backend().Name(), "search/")
}

func turns(t *testing.T, b *leaseway.Balanced, count int) string {
	t.Helper()
	picked := ""
	for range count {
		picked += turn(t, b)
	}
	return picked
}

// balanced balances across rates that want 1000 each.
func balanced(t *testing.T, client *leaseway.Client, names []string, options ...leaseway.BalancerOption) *leaseway.Balanced {
	t.Helper()
	var rates []*leaseway.Rate
	for _, name := range names {
		rates = append(rates, must(client.Rate(name, leaseway.WithWants(1000))))
	}
	search := must(leaseway.NewBalanced(rates, options...))
	t.Cleanup(search.Close)
	return search
}

func TestBalancingFollowsTheLeasesOfBackends(t *testing.T) {
	server := serve(t, []template{
		{glob: "search/a", capacity: 700, lease: 60, refresh: 1},
		{glob: "search/b", capacity: 300, lease: 60, refresh: 1},
	})
	client := dial(t, server.address)
	search := balanced(t, client, []string{"search/a", "search/b"})
	eventually(t, "both leases arrive", func() bool {
		return search.Balancer().IsEnabled(0) && search.Balancer().IsEnabled(1)
	})
	if picked := turns(t, search, 20); picked != "abaaabaabaabaaabaaba" {
		t.Error(picked)
	}
	search.Failed(0)
	if picked := turns(t, search, 5); picked != "bbbbb" {
		t.Error(picked)
	}
	search.Failed(1)
	// Without a backend, callers wait until the client is closed.
	waited := make(chan error, 1)
	go func() {
		_, err := search.Wait(context.Background())
		waited <- err
	}()
	_ = client.Close()
	if err := <-waited; !errors.Is(err, leaseway.ErrClosed) {
		t.Error(err)
	}
}

func TestABackendThatLosesItsLeaseIsLeftByThoseWhoWaitThere(t *testing.T) {
	// Nothing can be saved up, so callers wait.
	first, second := startFake(t, 0.001), startFake(t, 0)
	rates := []*leaseway.Rate{
		must(dial(t, first.address, leaseway.Pessimistic).Rate("search/a", leaseway.WithWants(1000))),
		must(dial(t, second.address, leaseway.Pessimistic).Rate("search/b", leaseway.WithWants(1000))),
	}
	search := must(leaseway.NewBalanced(rates, leaseway.WithRetry(time.Hour)))
	defer search.Close()
	eventually(t, "a lease", func() bool { return search.Balancer().IsEnabled(0) })
	waited := make(chan string, 1)
	go func() { waited <- turn(t, search) }()
	eventually(t, "a caller waits", func() bool {
		wait, known := rates[0].RetryAfter(1)
		return known && wait > 1000*time.Second
	})
	first.set(func() { first.capacity = 0 })
	eventually(t, "the lease is cut", func() bool { return !search.Balancer().IsEnabled(0) })
	select {
	case name := <-waited:
		t.Error(name)
	case <-time.After(20 * time.Millisecond):
	}
	second.set(func() { second.capacity = 1000 })
	if name := <-waited; name != "b" {
		t.Error(name)
	}
}

func TestWaitsForABackendEnd(t *testing.T) {
	fake := startFake(t, 1000)
	client := dial(t, fake.address)
	search := balanced(t, client, []string{"search/a"}, leaseway.WithRetry(50*time.Millisecond))
	eventually(t, "a lease", func() bool { return search.Balancer().IsEnabled(0) })
	search.Failed(0)
	if name := turn(t, search); name != "a" {
		t.Error("the back-off ends", name)
	}
	search.Balancer().Pause(0)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := search.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	waited := make(chan string, 1)
	go func() { waited <- turn(t, search) }()
	time.Sleep(10 * time.Millisecond)
	search.Balancer().Resume(0)
	if name := <-waited; name != "a" {
		t.Error("a resumed backend", name)
	}
	search.Balancer().Pause(0)
	closed := make(chan error, 1)
	go func() {
		_, err := search.Wait(context.Background())
		closed <- err
	}()
	time.Sleep(10 * time.Millisecond)
	search.Close()
	search.Close()
	if err := <-closed; !errors.Is(err, leaseway.ErrClosed) {
		t.Error(err)
	}
	if len(client.Stats().Resources) != 0 {
		t.Error("the rates are closed, too")
	}
}

func TestABackOffMayEndWhileAWaitForItBegins(t *testing.T) {
	client := dial(t, startFake(t, 1000).address)
	// Time passes between two readings of the clock, as when a thread is preempted.
	for _, step := range []time.Duration{7, 10, 14, 20, 26, 33, 49} {
		var mu sync.Mutex
		now := time.Now()
		clock := func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			now = now.Add(step * time.Millisecond)
			return now
		}
		search := balanced(t, client, []string{"search/a"}, leaseway.WithRetry(50*time.Millisecond), leaseway.WithClock(clock))
		eventually(t, "a lease", func() bool { return search.Balancer().IsEnabled(0) })
		search.Failed(0)
		if name := turn(t, search); name != "a" {
			t.Error(name)
		}
		search.Close()
	}
}

func TestBackendsThatCloseBeforeTheirFirstLeaseEndWaits(t *testing.T) {
	fake := startFake(t, 1000)
	fake.set(func() { fake.silent = true })
	for _, end := range []func(*leaseway.Client, *leaseway.Balanced){
		func(client *leaseway.Client, _ *leaseway.Balanced) { go func() { _ = client.Close() }() },
		func(_ *leaseway.Client, search *leaseway.Balanced) { search.Balancer().Backends()[0].Close() },
		func(_ *leaseway.Client, search *leaseway.Balanced) { search.Close() },
	} {
		client := dial(t, fake.address, leaseway.WithDeadline(time.Second))
		search := balanced(t, client, []string{"search/a", "search/b"})
		waited := make(chan error, 1)
		go func() {
			_, err := search.Wait(context.Background())
			waited <- err
		}()
		time.Sleep(10 * time.Millisecond)
		end(client, search)
		select {
		case err := <-waited:
			if !errors.Is(err, leaseway.ErrClosed) {
				t.Error(err)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("it hangs")
		}
	}
}

func TestEstimatedWantsCannotBeBalanced(t *testing.T) {
	client := dial(t, startFake(t, 1).address)
	var option *leaseway.OptionError
	if _, err := leaseway.NewBalanced([]*leaseway.Rate{must(client.Rate("r"))}); !errors.As(err, &option) ||
		!strings.Contains(err.Error(), `"r"`) {
		t.Error(err)
	}
}
