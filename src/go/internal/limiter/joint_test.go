package limiter

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

// crowd is callers of several limits in virtual time.
type crowd struct {
	t      *testing.T
	now    time.Duration
	limits []Part
	queues []*queue
	// callers has one entry for each that has joined. A caller without a ticket was admitted at once.
	callers []*caller
}

type caller struct {
	needs  []uint64
	ticket *ticket
	// done says that it has released its permits, or has given up.
	done bool
}

func (c *caller) isAdmitted() bool { return c.ticket == nil || c.ticket.state == ticketAdmitted }

func (c *caller) holds() bool { return c.isAdmitted() && !c.done }

func (c *caller) waits() bool { return !c.isAdmitted() && !c.done }

func newCrowd(t *testing.T, limits ...Part) *crowd {
	c := &crowd{t: t, limits: limits}
	for i := range limits {
		c.queues = append(c.queues, limits[i].queue())
	}
	return c
}

func ofRate(burst Burst) Part { return Part{Rate: NewRate(time.Now(), burst, DefaultMaxDebt, nil)} }

func ofGauge() Part { return Part{Gauge: NewGauge(time.Now(), nil)} }

// settle advances tickets until no more can be admitted.
func (c *crowd) settle() {
	for {
		var tickets []*ticket
		for _, q := range c.queues {
			tickets = append(tickets, q.advanced...)
			q.advanced = nil
		}
		if len(tickets) == 0 {
			return
		}
		for _, t := range tickets {
			t.advance(slices.Repeat([]time.Duration{c.now}, len(t.slots)))
		}
	}
}

func (c *crowd) pass(passed time.Duration) {
	for end := c.now + passed; c.now < end; {
		c.now += ms
		for _, q := range c.queues {
			q.tick(c.now)
		}
		c.settle()
	}
}

func (c *crowd) joint(needs []uint64) *Joint {
	parts := slices.Clone(c.limits)
	for i, n := range needs {
		parts[i].N = n
	}
	return NewJoint(parts)
}

func (c *crowd) nows(j *Joint) []time.Duration {
	return slices.Repeat([]time.Duration{c.now}, len(j.slots))
}

func (c *crowd) join(needs ...uint64) *caller {
	j := c.joint(needs)
	ticket, err := joinAll(j.slots, c.nows(j))
	if err != nil {
		c.t.Fatal(err)
	}
	joined := &caller{needs: needs, ticket: ticket}
	c.callers = append(c.callers, joined)
	c.settle()
	return joined
}

// try returns the limit that refuses, and its outcome.
func (c *crowd) try(needs ...uint64) (limit int, refusal *Refusal) {
	j := c.joint(needs)
	refusal = j.decide(c.nows(j))
	c.settle()
	if refusal != nil {
		limit = refusal.Index
	}
	return limit, refusal
}

// end returns the permits of a caller, or makes it give up.
func (c *crowd) end(caller *caller) {
	switch {
	case caller.holds():
		c.giveBack(caller.needs)
	case caller.waits():
		caller.ticket.cancel(slices.Repeat([]time.Duration{c.now}, len(caller.ticket.slots)))
	}
	caller.done = true
	c.settle()
}

func (c *crowd) giveBack(needs []uint64) {
	for i, n := range needs {
		if gauge := c.limits[i].Gauge; gauge != nil {
			gauge.count.giveBack(n)
			c.queues[i].admit(c.now)
		}
	}
}

func (c *crowd) setCapacity(limit int, capacity float64) {
	c.queues[limit].setCapacity(c.now, capacity, never, 0)
	c.settle()
}

func (c *crowd) charge(limit int, n uint64) {
	s := &c.queues[limit].semaphore
	before := s.pending(c.now)
	s.arrive(s.meter.(*bucket).charge(c.now, n))
	s.admit(c.now)
	if s.pending(c.now) > before {
		s.raisePressure(c.now, before)
	}
	c.settle()
}

// readings returns the permits taken or in use, and those of callers in the queue, by limit.
func (c *crowd) readings() [][2]uint64 {
	readings := make([][2]uint64, len(c.queues))
	for i, q := range c.queues {
		used := q.meter.taken()
		if c.limits[i].Gauge != nil {
			used = q.meter.inUse()
		}
		readings[i] = [2]uint64{used, q.waiting + q.reserved}
	}
	return readings
}

// check checks that nothing is lost: each gauge has in use what the admitted callers hold, within its capacity unless that
// was cut, and each limit counts what its callers wait for.
func (c *crowd) check(taken []uint64) {
	c.t.Helper()
	for i, reading := range c.readings() {
		var held, wanted uint64
		for _, caller := range c.callers {
			if caller.holds() {
				held += caller.needs[i]
			}
			if caller.waits() {
				wanted += caller.needs[i]
			}
		}
		if c.limits[i].Gauge == nil {
			held = taken[i]
		}
		if reading != [2]uint64{held, wanted} {
			c.t.Fatalf("limit %d has %v, callers %d and %d", i, reading, held, wanted)
		}
	}
}

// A hundred callers of two rates and two gauges, with random histories.
func TestNothingIsLostAndARefusalTakesNothing(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c := newCrowd(t, ofRate(Burst{Kind: PermitsBurst, Permits: 10}), ofRate(Burst{}), ofGauge(), ofGauge())
		capacities := func() {
			c.setCapacity(0, rng.Float64()*40+1)
			c.setCapacity(1, rng.Float64()*40+1)
			c.setCapacity(2, float64(rng.IntN(5)+9))
			c.setCapacity(3, float64(rng.IntN(5)+9))
		}
		capacities()
		taken := make([]uint64, 4)
		// admitted adds up what rates have admitted.
		counted := map[*caller]bool{}
		count := func() {
			for _, caller := range c.callers {
				if caller.isAdmitted() && !counted[caller] {
					counted[caller] = true
					for i, n := range caller.needs {
						taken[i] += n
					}
				}
			}
		}
		needs := func() []uint64 {
			needs := make([]uint64, 4)
			for needs[0]+needs[1]+needs[2]+needs[3] == 0 {
				for i := range needs {
					if rng.IntN(3) > 0 {
						needs[i] = rng.Uint64N(4)
					}
					if rng.IntN(20) == 0 {
						needs[i] = 9
					}
				}
			}
			return needs
		}
		for len(c.callers) < 100 {
			switch rng.IntN(6) {
			case 0, 1:
				c.join(needs()...)
			case 2:
				if len(c.callers) > 0 {
					if one := c.callers[rng.IntN(len(c.callers))]; !one.isAdmitted() || counted[one] {
						c.end(one)
					}
				}
			case 3:
				before, wanted := c.readings(), needs()
				if _, refusal := c.try(wanted...); refusal == nil {
					c.giveBack(wanted)
					c.settle()
					for i, n := range wanted {
						taken[i] += n
					}
				} else if after := c.readings(); !slices.Equal(before, after) {
					t.Fatalf("seed %d: a refusal changes %v to %v", seed, before, after)
				}
			case 4:
				if rng.IntN(8) == 0 {
					c.setCapacity(rng.IntN(4), []float64{0, 5, 12}[rng.IntN(3)])
				}
			default:
				c.pass(time.Duration(rng.IntN(200)) * ms)
			}
			count()
			c.check(taken)
		}
		// Whoever came is served, if permits of gauges come back.
		for i := range 4 {
			c.setCapacity(i, 12)
		}
		for range 600 {
			for _, caller := range c.callers {
				if caller.holds() && counted[caller] {
					c.end(caller)
				}
			}
			c.pass(100 * ms)
			count()
			c.check(taken)
		}
		for i, caller := range c.callers {
			if !caller.done {
				t.Fatalf("seed %d: caller %d, %v is not served", seed, i, caller.needs)
			}
		}
		for i, q := range c.queues {
			if q.head != nil || q.frontier != nil || q.waiting != 0 || q.reserved != 0 {
				t.Fatalf("seed %d: limit %d: %+v", seed, i, q.semaphore)
			}
		}
	}
}

func TestAWaitingCallerHoldsNothingAndOthersGetWhatIsLeftOver(t *testing.T) {
	c := newCrowd(t, ofRate(Burst{Kind: PermitsBurst, Permits: 10}), ofGauge())
	c.setCapacity(0, 1)
	c.setCapacity(1, 3)
	waiting := c.join(8, 2)
	if got := c.readings(); got[0][0] != 0 || got[1][0] != 0 {
		t.Fatal(got)
	}
	leftOver := c.join(0, 1)
	if !leftOver.isAdmitted() {
		t.Fatal("two are reserved, one is left")
	}
	if limit, refusal := c.try(0, 1); refusal == nil || limit != 1 || refusal.RetryAfter != Unknown {
		t.Fatal(limit, refusal)
	}
	if limit, refusal := c.try(1, 0); refusal == nil || limit != 0 || refusal.RetryAfter != 9*time.Second {
		t.Fatal("it would overtake", limit, refusal)
	}
	if _, refusal := c.try(11, 4); refusal == nil || refusal.Burst != 10 {
		t.Fatal(refusal)
	}
	c.end(leftOver)
	c.pass(8*time.Second - ms)
	if waiting.isAdmitted() {
		t.Fatal("too early")
	}
	if c.pass(ms); !waiting.isAdmitted() {
		t.Fatal(c.readings())
	}
}

// Everybody needs two neighbours of four limits, as the philosophers do.
func TestACallerThatNeedsMuchIsNotStarved(t *testing.T) {
	c := newCrowd(t, ofGauge(), ofGauge(), ofGauge(), ofGauge())
	for i := range 4 {
		c.setCapacity(i, 1)
	}
	neighbours := func(i int) []uint64 {
		needs := make([]uint64, 4)
		needs[i%4], needs[(i+1)%4] = 1, 1
		return needs
	}
	for i := range 8 {
		c.join(neighbours(i)...)
	}
	all := c.join(1, 1, 1, 1)
	for turn := range 100 {
		for _, caller := range slices.Clone(c.callers) {
			if caller != all && caller.holds() {
				c.end(caller)
				c.join(neighbours(turn)...)
			}
		}
		if all.isAdmitted() {
			if turn > 8 {
				t.Error("after turn", turn)
			}
			return
		}
	}
	t.Fatal("starved")
}

// A hundred goroutines take permits of four limits, in real time.
func TestGoroutinesNeitherDeadlockNorLosePermits(t *testing.T) {
	start := time.Now()
	rates := []*Rate{
		NewRate(start, Burst{Kind: PermitsBurst, Permits: 100}, 0, nil), NewRate(start, Burst{}, 0, nil),
	}
	gauges := []*Gauge{NewGauge(start, nil), NewGauge(start, nil)}
	for i := range 2 {
		rates[i].SetUsable(100_000, never, 0, -1)
		gauges[i].SetUsable(float64(5+i), never, 0)
	}
	var group sync.WaitGroup
	var mu sync.Mutex
	taken := [2]uint64{}
	for i := range 100 {
		parts := []Part{
			{Rate: rates[0], N: uint64(i % 3)}, {Gauge: gauges[0], N: uint64(i % 4)},
			{Gauge: gauges[1], N: 2}, {Rate: rates[1], N: uint64(i % 5)},
		}
		joint := NewJoint(append(parts[i%4:], parts[:i%4]...))
		group.Add(1)
		go func() {
			defer group.Done()
			for turn := range 50 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				if (turn+i)%7 == 0 {
					cancel()
					ctx, cancel = context.WithTimeout(context.Background(), time.Duration(turn)*time.Microsecond)
				}
				err := joint.Acquire(ctx)
				if (turn+i)%5 == 0 {
					if joint.TryAcquire() == nil {
						joint.Release()
						mu.Lock()
						taken[0] += uint64(i % 3)
						taken[1] += uint64(i % 5)
						mu.Unlock()
					}
				}
				cancel()
				switch {
				case err == nil:
					joint.Release()
					mu.Lock()
					taken[0] += uint64(i % 3)
					taken[1] += uint64(i % 5)
					mu.Unlock()
				case (turn+i)%7 != 0 || !errors.Is(err, context.DeadlineExceeded):
					t.Error(err)
				}
			}
		}()
	}
	group.Wait()
	for i := range 2 {
		if gauges[i].InUse() != 0 || gauges[i].Waiting() != 0 || rates[i].Waiting() != 0 {
			t.Error(gauges[i].InUse(), gauges[i].Waiting(), rates[i].Waiting())
		}
		if !gauges[i].TryAcquire(5) {
			t.Error("permits are reserved")
		}
		if rates[i].Taken() != taken[i] {
			t.Error(rates[i].Taken(), taken)
		}
	}
}

func TestClosingOneLimiterEndsTheWaitAndLeavesTheOthers(t *testing.T) {
	start := time.Now()
	rate, gauge := NewRate(start, Burst{}, 0, nil), NewGauge(start, nil)
	gauge.SetUsable(1, never, 0)
	rate.SetUsable(1, never, 0, -1)
	joint := NewJoint([]Part{{Rate: rate, N: 500}, {Gauge: gauge, N: 1}})
	ended := make(chan error)
	go func() { ended <- joint.Acquire(context.Background()) }()
	eventually(t, func() bool { return rate.Waiting() > 0 })
	if gauge.TryAcquire(1) {
		t.Fatal("its permit is reserved")
	}
	rate.Close()
	if err := <-ended; !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	if !gauge.TryAcquire(1) {
		t.Fatal("nothing is reserved any more")
	}
	if err := joint.Acquire(context.Background()); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	if refusal := joint.TryAcquire(); refusal == nil || !refusal.IsClosed || refusal.Index != 0 {
		t.Fatal(refusal)
	}
}

func TestALimiterMayBeNamedTwiceAndZeroPermitsAreNotWaitedFor(t *testing.T) {
	start := time.Now()
	rate, empty := NewRate(start, Burst{Kind: PermitsBurst, Permits: 10}, 0, nil), NewGauge(start, nil)
	rate.SetUsable(1, never, 0, -1)
	rate.mu.Lock()
	rate.bucket.credit = units(5)
	rate.mu.Unlock()
	twice := NewJoint([]Part{{Rate: rate, N: 2}, {Gauge: empty}, {Rate: rate, N: 4}})
	refusal := twice.TryAcquire()
	if refusal == nil || refusal.Index != 2 || refusal.RetryAfter > time.Second || refusal.RetryAfter < 500*ms {
		t.Fatal(refusal)
	}
	rate.mu.Lock()
	rate.bucket.credit = units(6)
	rate.mu.Unlock()
	if err := twice.Acquire(context.Background()); err != nil || rate.Taken() != 6 {
		t.Fatal(err, rate.Taken())
	}
	if err := NewJoint([]Part{{Gauge: empty}}).Acquire(context.Background()); err != nil {
		t.Fatal(err)
	}
}
