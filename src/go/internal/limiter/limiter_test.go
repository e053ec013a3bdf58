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
)

const ms = time.Millisecond

// eventually waits until a condition is true.
func eventually(t *testing.T, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !condition(); time.Sleep(ms) {
		if time.Now().After(end) {
			t.Fatal("not within ten seconds")
		}
	}
}

func TestUint128AgreesWithBigIntegers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	number := func() uint128 {
		return uint128{rng.Uint64() >> rng.IntN(65), rng.Uint64() >> rng.IntN(65)}
	}
	most := maxUint128.big()
	saturated := func(n *big.Int) *big.Int {
		if n.Cmp(most) > 0 {
			return most
		}
		return n
	}
	for range 20_000 {
		a, b, n := number(), number(), rng.Uint64()
		if got, want := a.add(b).big(), saturated(new(big.Int).Add(a.big(), b.big())); got.Cmp(want) != 0 {
			t.Fatalf("%v + %v = %v", a, b, got)
		}
		if got, want := a.mul(n).big(), saturated(new(big.Int).Mul(a.big(), new(big.Int).SetUint64(n))); got.Cmp(want) != 0 {
			t.Fatalf("%v * %v = %v", a, n, got)
		}
		want := new(big.Int).Sub(a.big(), b.big())
		if want.Sign() < 0 {
			want.SetInt64(0)
		}
		if got := a.sub(b).big(); got.Cmp(want) != 0 || a.less(b) != (a.big().Cmp(b.big()) < 0) {
			t.Fatalf("%v - %v = %v", a, b, got)
		}
		if b.isZero() {
			continue
		}
		quotient, rest := new(big.Int).DivMod(a.big(), b.big(), new(big.Int))
		if !quotient.IsUint64() {
			quotient.SetUint64(math.MaxUint64)
			rest.SetInt64(0)
		}
		up := quotient.Uint64()
		if got := a.div(b); got != up {
			t.Fatalf("%v / %v = %d", a, b, got)
		}
		if rest.Sign() > 0 && up < math.MaxUint64 {
			up++
		}
		if got := a.divUp(b); got != up {
			t.Fatalf("%v / %v = %d, rounded up", a, b, got)
		}
	}
}

func TestWholePermitsAreCountedExactly(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 20_000 {
		units := uint128{rng.Uint64() >> rng.IntN(65), rng.Uint64() >> rng.IntN(65)}
		if got := whole(units); got != units.div(unitsPerPermit) {
			t.Fatalf("%v has %d", units, got)
		}
	}
}

// available returns the whole permits available.
func available(b *bucket, now time.Duration) uint64 {
	b.settle(now)
	return whole(b.credit)
}

func bucketAt(capacity float64, burst Burst) *bucket {
	b := newBucket(burst)
	b.setCapacity(0, capacity)
	return b
}

func TestABucketStartsEmptyAndFillsUpToItsBurst(t *testing.T) {
	b := bucketAt(10, Burst{Kind: PermitsBurst, Permits: 3})
	if b.take(0, 1) {
		t.Fatal("it starts with credit")
	}
	if wait := b.readyIn(0, 1); wait != 100*ms {
		t.Fatal(wait)
	}
	if b.take(100*ms-1, 1) || !b.take(100*ms, 1) {
		t.Fatal("the first permit comes after 100 ms")
	}
	if n := available(b, time.Hour); n != 3 {
		t.Fatal(n)
	}
	if !b.take(time.Hour, 3) || b.take(time.Hour, 1) {
		t.Fatal("the burst is three")
	}
}

// The goroutine that applies a lease may be late.
func TestALeaseThatHasExpiredAdmitsNobody(t *testing.T) {
	const expired = time.Nanosecond
	rate, gauge := NewRate(time.Now(), Burst{}, 0, nil), NewGauge(time.Now(), nil)
	for name, c := range map[string]struct {
		queue    *queue
		wait     func(context.Context) error
		setLease func()
	}{
		"rate": {&rate.queue, func(ctx context.Context) error { return rate.Wait(ctx, 1) },
			func() { rate.SetUsable(math.Inf(1), expired, 0, -1) }},
		"gauge": {&gauge.queue, func(ctx context.Context) error { return gauge.Acquire(ctx, 1) },
			func() { gauge.SetUsable(5, expired, 0) }},
	} {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- c.wait(ctx) }()
		eventually(t, func() bool { return c.queue.Waiting() > 0 })
		c.setLease()
		if c.queue.Taken() != 0 || c.queue.Capacity() != 0 {
			t.Errorf("%s: %d taken, capacity %g", name, c.queue.Taken(), c.queue.Capacity())
		}
		cancel()
		if err := <-ended; err != context.Canceled {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBurstsFollowTheCapacity(t *testing.T) {
	inf := math.Inf(1)
	for _, c := range []struct {
		burst    Burst
		capacity float64
		buffer   time.Duration
		permits  float64
	}{
		{Burst{}, 100, -1, 3},
		{Burst{}, 0, -1, 1},
		{Burst{Kind: WindowBurst, Window: time.Minute}, 2, -1, 120},
		{Burst{Kind: WindowBurst}, inf, -1, 1},
		{Burst{Kind: PermitsBurst, Permits: 7}, 2, -1, 7},
		{Burst{Kind: PermitsBurst, Permits: 0.5}, 2, -1, 1},
		{Burst{Kind: PermitsBurst, Permits: 7}, inf, -1, inf},
		// The server sets the burst of a pool. A smaller choice is respected.
		{Burst{}, 10, 6 * time.Second, 60},
		{Burst{}, 10, 0, 1.2},
		{Burst{Kind: PermitsBurst, Permits: 7}, 10, 6 * time.Second, 7},
		{Burst{Kind: WindowBurst, Window: time.Minute}, 10, 6 * time.Second, 60},
	} {
		if got := c.burst.within(c.capacity, c.buffer); got != c.permits {
			t.Errorf("%+v: %g", c, got)
		}
	}
}

// In any period of T seconds at most capacity · T + burst permits pass.
func TestABucketNeverPassesMoreThanCapacityAndBurst(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 3))
		capacity := math.Exp(rng.Float64()*20 - 5)
		b := bucketAt(capacity, Burst{})
		type event struct {
			at     time.Duration
			before float64
		}
		var now time.Duration
		passed, events := 0.0, []event{}
		for range 300 {
			now += time.Duration(rng.ExpFloat64() / capacity * 1e9)
			n := rng.Uint64N(3) + 1
			if !b.take(now, n) {
				continue
			}
			events = append(events, event{now, passed})
			passed += float64(n)
			for _, from := range events {
				if most := capacity*(now-from.at).Seconds() + b.permits(); passed-from.before > most+1e-6 {
					t.Fatalf("seed %d: %g permits in %v at %g", seed, passed-from.before, now-from.at, capacity)
				}
			}
			if rng.IntN(4) == 0 {
				// Returned permits never let more through.
				back := b.refund(now, rng.Uint64N(n+1))
				passed -= float64(back)
			}
		}
	}
}

func TestABucketDoesNotDriftHoweverOftenItIsSettled(t *testing.T) {
	for _, capacity := range []float64{0.1, 3, 99, 12_345.678} {
		rare := bucketAt(capacity, Burst{Kind: WindowBurst, Window: time.Hour})
		often := bucketAt(capacity, Burst{Kind: WindowBurst, Window: time.Hour})
		for now := time.Duration(0); now < time.Second; now += 77_777 {
			often.settle(now)
		}
		rare.settle(time.Second)
		often.settle(time.Second)
		if rare.credit != often.credit {
			t.Errorf("%g: %v and %v", capacity, rare.credit, often.credit)
		}
	}
}

func TestDebtIsPaidBeforeAnyCallerPasses(t *testing.T) {
	b := bucketAt(10, Burst{Kind: PermitsBurst, Permits: 5})
	if charged := b.charge(time.Second, 25); charged != 25 {
		t.Fatal(charged)
	}
	if owed := b.owed(time.Second); owed != 20 {
		t.Fatal(owed)
	}
	if b.take(3*time.Second, 1) || !b.take(3_100*ms, 1) {
		t.Fatal("a debt of 20 takes two seconds, and a permit 100 ms")
	}
	b.maxDebt = units(3)
	if charged := b.charge(3_100*ms, 10); charged != 3 {
		t.Fatal(charged)
	}
	if b.setCapacity(3_100*ms, math.Inf(1)); b.owed(3_100*ms) != 0 {
		t.Fatal("debt at an unlimited capacity")
	}
}

func TestReturnedPermitsRestoreWhatThereWouldBeWithoutThem(t *testing.T) {
	b := bucketAt(10, Burst{Kind: PermitsBurst, Permits: 10})
	b.settle(time.Second)
	b.take(time.Second, 8)
	if b.refund(time.Second, 8); available(b, time.Second) != 10 {
		t.Fatal("nothing passed")
	}
	b.take(time.Second, 8)
	// After 500 ms the bucket would be full, too, so only 3 of 8 can come back.
	if b.refund(1_500*ms, 8); available(b, 1_500*ms) != 10 {
		t.Fatal(available(b, 1_500*ms))
	}
	b.take(1_500*ms, 8)
	if b.refund(time.Hour, 8); available(b, time.Hour) != 10 {
		t.Fatal("the bucket has overflowed since")
	}
	// A promise is tracked by itself: what others take later does not age it.
	b.take(time.Hour, 5)
	promise := b.promise(5)
	b.take(time.Hour, 5)
	if b.usePart(time.Hour, promise, 2); available(b, time.Hour) != 3 {
		t.Fatal(available(b, time.Hour))
	}
}

func TestACutDropsSavedPermitsInProportion(t *testing.T) {
	b := bucketAt(100, Burst{Kind: WindowBurst, Window: time.Second})
	b.settle(time.Minute)
	b.setCapacity(time.Minute, 10)
	if n := available(b, time.Minute); n != 10 {
		t.Fatal(n)
	}
	b.setCapacity(time.Minute, 0)
	if b.take(time.Hour, 1) || b.readyIn(time.Hour, 1) != Unknown {
		t.Fatal("no capacity, no permits")
	}
	b.setCapacity(time.Hour, math.Inf(1))
	if !b.take(time.Hour, 1<<62) {
		t.Fatal("there is no limit")
	}
}

func rateAt(capacity float64, burst Burst) *semaphore {
	s := newSemaphore(newBucket(burst), nil)
	s.setCapacity(0, capacity, never, 0)
	return &s
}

// join queues a waiter and fails if it does not have to wait.
func join(t *testing.T, s *semaphore, now time.Duration, n uint64) *waiter {
	t.Helper()
	w, err := s.acquire(now, n)
	if err != nil || w == nil {
		t.Fatalf("no waiter: %v", err)
	}
	return w
}

func isAdmitted(w *waiter) bool { return w.state == waiterAdmitted }

func TestCallersAreServedInOrder(t *testing.T) {
	s := rateAt(10, Burst{Kind: PermitsBurst, Permits: 1})
	large, small := join(t, s, 0, 5), join(t, s, 0, 1)
	if s.wake() != 500*ms {
		t.Fatal(s.wake())
	}
	s.tick(499 * ms)
	if isAdmitted(large) || isAdmitted(small) || s.tryAcquire(499*ms, 1) {
		t.Fatal("somebody has overtaken")
	}
	s.tick(500 * ms)
	if !isAdmitted(large) || isAdmitted(small) {
		t.Fatal("it saves up for more than its burst")
	}
	s.tick(600 * ms)
	if !isAdmitted(small) || s.wake() != never {
		t.Fatal("the next follows")
	}
}

func TestAWaiterThatGivesUpTakesNothing(t *testing.T) {
	s := rateAt(10, Burst{Kind: PermitsBurst, Permits: 1})
	first, second := join(t, s, 0, 4), join(t, s, 0, 1)
	s.tick(200 * ms)
	s.leave(200*ms, first)
	if !isAdmitted(second) {
		t.Fatal("the credit saved for the first serves the second")
	}
	// It was its turn at that moment.
	s.leave(200*ms, second)
	if !s.tryAcquire(200*ms, 1) {
		t.Fatal("its permit came back")
	}
	if s.waiting != 0 || s.head != nil || s.meter.taken() != 1 {
		t.Fatalf("%+v", s)
	}
}

func TestCreditSavedForAWaiterThatLeavesIsDropped(t *testing.T) {
	s := rateAt(10, Burst{Kind: PermitsBurst, Permits: 1})
	s.leave(400*ms, join(t, s, 0, 5))
	if n := available(s.meter.(*bucket), 400*ms); n != 1 {
		t.Fatal(n)
	}
}

func TestAPromiseRestoresNoMoreThanTheRoomSince(t *testing.T) {
	b := bucketAt(10, Burst{Kind: PermitsBurst, Permits: 10})
	b.settle(time.Second)
	b.take(time.Second, 6)
	promise := b.promise(6)
	// Three permits have come back by themselves, so there is room for three.
	b.settle(1_300 * ms)
	if b.handBack(1_300*ms, promise); b.credit != units(10) {
		t.Fatal(b.credit.float() / unitsPerPermit.float())
	}
}

func TestALeaseIsNotUsedAfterItsExpiry(t *testing.T) {
	s := rateAt(0, Burst{Kind: WindowBurst, Window: time.Minute})
	s.setCapacity(0, 100, 10*time.Second, 2)
	if n := available(s.meter.(*bucket), 9*time.Second); n != 900 {
		t.Fatal(n)
	}
	// Nothing runs at the expiry: the next caller notices. The fallback of 2 per second has saved up two minutes' worth
	// at most, and time after the expiry counts at its rate.
	if s.tryAcquire(20*time.Second, 121) {
		t.Fatal("permits of an expired lease")
	}
	if !s.tryAcquire(20*time.Second, 120) {
		t.Fatal("the fallback")
	}

	gauge := newSemaphore(&count{}, nil)
	gauge.setCapacity(0, 5, 10*time.Second, 0)
	if !gauge.tryAcquire(9*time.Second, 1) || gauge.tryAcquire(10*time.Second, 1) {
		t.Fatal("the lease of a gauge")
	}
}

func TestAGaugeGrantsNoMoreThanItsCapacity(t *testing.T) {
	c := &count{}
	s := newSemaphore(c, nil)
	s.setCapacity(0, 2.9, never, 0)
	if !s.tryAcquire(0, 2) || s.tryAcquire(0, 1) {
		t.Fatal("2.9 allows two")
	}
	w := join(t, &s, 0, 1)
	s.setCapacity(0, 1, never, 0)
	c.giveBack(1)
	s.admit(0)
	if isAdmitted(w) {
		t.Fatal("after a cut enough have to come back first")
	}
	c.giveBack(1)
	if s.admit(0); !isAdmitted(w) {
		t.Fatal("now one is free")
	}
	if s.tryAcquire(0, 5) || s.peak != 3 {
		t.Fatalf("a request for more than the capacity is not demand; the peak is %d", s.peak)
	}
}

func TestPressureIsNotifiedWhenCallersWaitAndWhenTheyDouble(t *testing.T) {
	notified := 0
	s := newSemaphore(newBucket(Burst{}), func() { notified++ })
	for range 9 {
		join(t, &s, 0, 1)
	}
	if notified != 4 {
		t.Fatalf("%d times for 1, 2, 4 and 8", notified)
	}
}

func TestClosingRefusesAll(t *testing.T) {
	s := rateAt(1, Burst{})
	w := join(t, s, 0, 1)
	s.close(0)
	if err := s.finish(w); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	if _, err := s.acquire(0, 1); !errors.Is(err, ErrClosed) || s.tryAcquire(time.Hour, 1) {
		t.Fatal(err)
	}
}

// With goroutines and the real clock.

func TestWaitersAreServedAtTheRateAndCancelledOnesTakeNothing(t *testing.T) {
	r := NewRate(time.Now(), Burst{}, DefaultMaxDebt, nil)
	r.SetUsable(1000, never, 0, -1)
	var served, cancelled atomic.Int64
	var all sync.WaitGroup
	start := time.Now()
	for i := range 400 {
		all.Add(1)
		go func() {
			defer all.Done()
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if i%4 == 0 {
				ctx, cancel = context.WithTimeout(ctx, time.Duration(i/10)*ms)
				defer cancel()
			}
			switch err := r.Wait(ctx, 1); {
			case err == nil:
				served.Add(1)
			case errors.Is(err, context.DeadlineExceeded):
				cancelled.Add(1)
			default:
				t.Error(err)
			}
		}()
	}
	all.Wait()
	took := time.Since(start).Seconds()
	if most := 1000*took + r.State().Burst; float64(served.Load()) > most {
		t.Errorf("%d in %.3f s", served.Load(), took)
	}
	if took > 2 || served.Load()+cancelled.Load() != 400 {
		t.Errorf("%d served and %d cancelled in %.3f s", served.Load(), cancelled.Load(), took)
	}
	if r.Waiting() != 0 || r.Taken() != uint64(served.Load()) {
		t.Errorf("%d wait, %d taken", r.Waiting(), r.Taken())
	}
}

func TestAReservationReturnsWhatWasNotUsed(t *testing.T) {
	r := NewRate(time.Now(), Burst{Kind: WindowBurst, Window: time.Hour}, 100, nil)
	r.SetUsable(1, never, 0, -1)
	if uncharged := r.Charge(60); uncharged != 0 {
		t.Fatal(uncharged)
	}
	if debt := r.Debt(); debt < 59 {
		t.Fatal(debt)
	}
	r.SetUsable(1e6, never, 0, -1)
	ctx := context.Background()
	promise, err := r.Reserve(ctx, 1000)
	if err != nil {
		t.Fatal(err)
	}
	before := r.Taken()
	if uncharged := r.Settle(promise, 300); uncharged != 0 || r.Taken() != before-700 {
		t.Fatal(uncharged, r.Taken())
	}
	promise, _ = r.Reserve(ctx, 1)
	// The credit is at most 3600 s at 1e6 per second.
	if uncharged := r.Settle(promise, 1e15); uncharged < 1e15-3.6e9-101 || r.Debt() > 100 {
		t.Fatal(uncharged, r.Debt())
	}
}

// Estimates of demand.

func sampled(t *testing.T, rate float64, step time.Duration, seconds int) (wants float64) {
	t.Helper()
	d := NewDemand(false)
	d.Sample(0, Sample{})
	arrived := 0.0
	var now time.Duration
	for now < time.Duration(seconds)*time.Second {
		now += step
		arrived += rate * step.Seconds()
		d.Sample(now, Sample{Count: uint64(arrived + 1e-6)})
	}
	return d.Wants(now)
}

func TestWantsEqualASteadyRateAtAnySamplingInterval(t *testing.T) {
	for _, step := range []time.Duration{100 * ms, 700 * ms, 1250 * ms, 5 * time.Second} {
		for _, rate := range []float64{0.1, 1, 7.3, 100, 4321, 1e6} {
			if wants := sampled(t, rate, step, 600); math.Abs(wants/rate-1) > 0.08 {
				t.Errorf("%g per second sampled every %v: %g", rate, step, wants)
			}
		}
	}
}

func TestWantsFallGraduallyToZero(t *testing.T) {
	d := NewDemand(true)
	d.Sample(0, Sample{Count: 100})
	d.Sample(ms, Sample{})
	if d.Wants(5*time.Second) != 100 || d.Wants(20*time.Second) > 40 || d.Wants(20*time.Second) < 30 || d.Wants(1e4*time.Second) != 0 {
		t.Fatal(d.Wants(5*time.Second), d.Wants(20*time.Second))
	}
}

// Each caller asks again as soon as it is served: arrivals equal served permits, and nearly all callers wait.
func TestWantsOfSaturatedCallersExceedTheCapacityWithinBounds(t *testing.T) {
	for _, capacity := range []float64{0.5, 10, 1000, 1e6} {
		d := NewDemand(false)
		d.Sample(0, Sample{Count: 64, Waiting: 64})
		arrived := 64.0
		for n := 1; n <= 600; n++ {
			arrived += capacity
			d.Sample(time.Duration(n)*time.Second, Sample{Count: uint64(arrived), Waiting: 64})
		}
		wants := d.Wants(600 * time.Second)
		if wants <= capacity || wants > 1.05*capacity+64+0.5 {
			t.Errorf("wants %g of %g", wants, capacity)
		}
	}
}

// A single caller in a loop hides its demand, because it never has more than one call waiting.
func TestACallerInALoopReachesItsCapacity(t *testing.T) {
	d := NewDemand(false)
	arrived, capacity, most := 1.0, 0.0, 100.0
	for n := range 30 {
		sample := Sample{Count: uint64(arrived), Freely: 1, Waiting: 1, Queued: time.Duration(n) * 100 * ms, Capacity: capacity}
		now := time.Duration(n) * 100 * ms
		d.Sample(now, sample)
		capacity = min(d.Wants(now), most)
		arrived += capacity / 10
	}
	if capacity != most {
		t.Fatalf("%g of %g after 3 s", capacity, most)
	}
}
