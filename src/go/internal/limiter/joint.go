package limiter

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"
)

// Part is a limiter and what is needed of it: N permits of a Rate or a Gauge, or an Amount of a Budget. A Joint ignores
// budgets, see JointBudgets.
type Part struct {
	Rate   *Rate
	Gauge  *Gauge
	N      uint64
	Budget *Budget
	Amount float64
}

func (p *Part) queue() *queue {
	if p.Rate != nil {
		return &p.Rate.queue
	}
	return &p.Gauge.queue
}

// Joint is several limiters with a number of permits of each, taken all at once or not at all. Callers are served first
// come, first served, and hold no permit while they wait. A limiter may be named several times; the numbers add up. One
// with 0 permits is not waited for.
//
// A caller that has to wait joins the queues of all its limiters while it has locked them, in the order in which they were
// created. So one order of arrival holds in all queues. In each, permits are reserved for it when it gets to the head and
// they are available; callers behind it get only what is left over. Once its permits are reserved at all limiters, it takes
// them. So it holds nothing while it waits, nobody is starved, and no order of the limiters leads to a deadlock.
type Joint struct {
	parts []Part
	// needed has the indices of parts with permits, and slotOf the index of the slot of each.
	needed []int
	slotOf []int
	slots  []slot
}

// slot is a queue and the sum of its parts. Slots are in the order of locking.
type slot struct {
	queue *queue
	n     uint64
}

// Refusal says why permits of several limiters are not available now. Nothing was taken, and the caller was not queued.
type Refusal struct {
	// Index is the index of the limiter that refuses; of several, the one that takes longest.
	Index int
	// Burst is the maximum number of permits that can be available at once, if more are needed; otherwise 0.
	Burst float64
	// RetryAfter is when the permits would be available if nothing changes, or Unknown.
	RetryAfter time.Duration
	// IsClosed says that the limiter was closed.
	IsClosed bool
}

// NewJoint returns permits of these limiters.
func NewJoint(parts []Part) *Joint {
	j := &Joint{parts: slices.Clone(parts)}
	for at := range j.parts {
		if j.parts[at].N > 0 {
			j.needed = append(j.needed, at)
		}
	}
	order := slices.Clone(j.needed)
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(j.parts[a].queue().rank, j.parts[b].queue().rank)
	})
	slots := make(map[int]int, len(order))
	for _, at := range order {
		part := &j.parts[at]
		last := len(j.slots) - 1
		if last < 0 || j.slots[last].queue != part.queue() {
			j.slots = append(j.slots, slot{queue: part.queue()})
			last++
		}
		part.N = min(part.N, math.MaxInt64-j.slots[last].n)
		j.slots[last].n += part.N
		slots[at] = last
	}
	for _, at := range j.needed {
		j.slotOf = append(j.slotOf, slots[at])
	}
	return j
}

// TryAcquire takes the permits of all limiters if they are available and no caller waits for them. Only limiters that
// refuse count the request as demand. The result is nil if it passes.
func (j *Joint) TryAcquire() *Refusal {
	nows := lockAll(j.slots)
	defer unlockAll(j.slots)
	return j.decide(nows)
}

// decide takes the permits of all limiters, which the caller has locked, or none.
func (j *Joint) decide(nows []time.Duration) *Refusal {
	outcomes := make([]*Refusal, len(j.needed))
	passes := true
	claimed := make([]uint64, len(j.slots))
	for at, part := range j.needed {
		slot := j.slotOf[at]
		outcomes[at] = j.slots[slot].queue.claim(nows[slot], claimed[slot], j.parts[part].N)
		if outcomes[at] == nil {
			claimed[slot] += j.parts[part].N
			continue
		}
		outcomes[at].Index = part
		passes = false
	}
	for at, part := range j.needed {
		slot, n := j.slotOf[at], j.parts[part].N
		switch outcome := outcomes[at]; {
		case passes:
			j.slots[slot].queue.takeChecked(nows[slot], n)
		case outcome != nil && !outcome.IsClosed && outcome.Burst == 0:
			j.slots[slot].queue.refuse(n)
		}
	}
	return slowest(outcomes)
}

// slowest returns the outcome that refuses: of all, the first of those that take longest. A retry before its permits are
// available is in vain.
func slowest(outcomes []*Refusal) *Refusal {
	var worst *Refusal
	for _, outcome := range outcomes {
		if outcome != nil && (worst == nil || worst.isBefore(outcome)) {
			worst = outcome
		}
	}
	return worst
}

func (r *Refusal) isBefore(other *Refusal) bool {
	if a, b := r.severity(), other.severity(); a != b {
		return a < b
	}
	return r.RetryAfter < other.RetryAfter
}

func (r *Refusal) severity() int {
	switch {
	case r.IsClosed:
		return 3
	case r.Burst != 0:
		return 2
	case r.RetryAfter == Unknown:
		return 1
	}
	return 0
}

// Acquire waits until the permits of all limiters are available, and takes them at the same moment. If the context ends
// first, nothing is taken.
func (j *Joint) Acquire(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	nows := lockAll(j.slots)
	t, err := joinAll(j.slots, nows)
	unlockAll(j.slots)
	if t == nil {
		return err
	}
	select {
	case <-t.ready:
		return t.finish()
	case <-ctx.Done():
	}
	nows = lockAll(j.slots)
	t.cancel(nows)
	unlockAll(j.slots)
	return ctx.Err()
}

// Release returns the permits of gauges.
func (j *Joint) Release() {
	for i := range j.parts {
		if part := &j.parts[i]; part.Gauge != nil && part.N > 0 {
			part.Gauge.Release(part.N)
		}
	}
}

// Reserve turns the permits of rates that were just taken into promises, by part.
func (j *Joint) Reserve() []Promise {
	promises := make([]Promise, len(j.parts))
	for i := range j.parts {
		if part := &j.parts[i]; part.Rate != nil {
			promises[i] = part.Rate.promiseTaken(part.N)
		}
	}
	return promises
}

// Parts returns the limiters with the numbers of permits.
func (j *Joint) Parts() []Part { return j.parts }

// lockAll locks the queues, and returns the time of each.
func lockAll(slots []slot) []time.Duration {
	nows := make([]time.Duration, len(slots))
	for i := range slots {
		nows[i] = slots[i].queue.lock()
	}
	return nows
}

// unlockAll unlocks the queues, then advances the tickets whose permits have been reserved meanwhile.
func unlockAll(slots []slot) { advanceAll(unlockAllOnly(slots)) }

func unlockAllOnly(slots []slot) []*ticket {
	var tickets []*ticket
	for i := range slots {
		tickets = append(tickets, slots[i].queue.unlockOnly()...)
	}
	return tickets
}

// advanceAll advances tickets, and those that they make way for, in order. No queue may be locked.
func advanceAll(tickets []*ticket) {
	for len(tickets) > 0 {
		t := tickets[0]
		nows := lockAll(t.slots)
		t.advance(nows)
		tickets = append(tickets[1:], unlockAllOnly(t.slots)...)
	}
}

// claim returns why n permits cannot be taken beyond claimed ones, or nil. It takes nothing.
func (s *semaphore) claim(now time.Duration, claimed, n uint64) *Refusal {
	if s.closed {
		return &Refusal{IsClosed: true, RetryAfter: Unknown}
	}
	all := saturatingAdd(claimed, n)
	if most, known := s.meter.maxAtOnce(); known && most < float64(all) {
		return &Refusal{Burst: most, RetryAfter: Unknown}
	}
	if s.areFree(now, claimed, n) {
		return nil
	}
	before := saturatingAdd(s.waiting, s.reserved)
	return &Refusal{RetryAfter: s.meter.readyIn(now, saturatingAdd(before, all))}
}

// takeChecked takes permits that are free.
func (s *semaphore) takeChecked(now time.Duration, n uint64) {
	s.arrive(n)
	s.takeUnqueued(now, n)
}

// refuse counts refused permits as demand.
func (s *semaphore) refuse(n uint64) {
	s.arrive(n)
	s.peak = max(s.peak, s.demanded()+n)
}

// join joins the queue.
func (s *semaphore) join(now time.Duration, n uint64, t *ticket) *waiter {
	s.arrive(n)
	before := s.pending(now)
	w := &waiter{n: n, ticket: t}
	s.push(now, w)
	s.admit(now)
	if !s.isAhead(w) {
		s.raisePressure(now, before)
	}
	s.peak = max(s.peak, s.demanded())
	return w
}

// takeReserved takes the reserved permits of a waiter.
func (s *semaphore) takeReserved(now time.Duration, w *waiter) Promise {
	// Taken before it leaves the queue, because then the meter stops saving up for it.
	s.meter.take(now, w.n)
	promise := s.meter.promise(w.n)
	s.unlink(now, w)
	s.admit(now)
	return promise
}

type ticketState int

const (
	ticketQueued ticketState = iota
	// ticketAdmitted has its permits, but its goroutine has not run since.
	ticketAdmitted
	// ticketRefused means that a limiter was closed.
	ticketRefused
	ticketEnded
)

// ticket is a caller that waits in the queues of several limiters. The locks of all of them guard its state. Like a
// semaphore it has no clock: nows has the time of each queue.
type ticket struct {
	slots   []slot
	waiters []*waiter
	state   ticketState
	// promises has the permits taken, once it is admitted.
	promises []Promise
	// ready is closed when it is admitted or refused.
	ready chan struct{}
}

// joinAll takes the permits if they are available and no caller waits; then there is no ticket. Otherwise it joins the
// queues, which the caller has locked.
func joinAll(slots []slot, nows []time.Duration) (*ticket, error) {
	areFree := true
	for i, slot := range slots {
		if slot.queue.closed {
			return nil, ErrClosed
		}
		areFree = areFree && slot.queue.claim(nows[i], 0, slot.n) == nil
	}
	if areFree {
		for i, slot := range slots {
			slot.queue.takeChecked(nows[i], slot.n)
		}
		return nil, nil
	}
	t := &ticket{slots: slots, waiters: make([]*waiter, len(slots)), ready: make(chan struct{})}
	for i, slot := range slots {
		t.waiters[i] = slot.queue.join(nows[i], slot.n, t)
	}
	return t, nil
}

// advance takes the permits if they are reserved at all limiters, and leaves all queues if a limiter was closed.
func (t *ticket) advance(nows []time.Duration) {
	if t.state != ticketQueued {
		return
	}
	areReserved, isClosed := true, false
	for i, w := range t.waiters {
		isClosed = isClosed || w.state == waiterRefused
		areReserved = areReserved && w.state == waiterQueued && t.slots[i].queue.isAhead(w)
	}
	switch {
	case isClosed:
		t.state = ticketRefused
		t.leave(nows)
		close(t.ready)
	case areReserved:
		t.state = ticketAdmitted
		t.promises = make([]Promise, len(t.waiters))
		for i, w := range t.waiters {
			t.promises[i] = t.slots[i].queue.takeReserved(nows[i], w)
		}
		close(t.ready)
	}
}

// finish is called by the goroutine of a ticket that is ready.
func (t *ticket) finish() error {
	if t.state == ticketRefused {
		return ErrClosed
	}
	for i := range t.slots {
		queue := t.slots[i].queue
		queue.mu.Lock()
		queue.meter.claim(t.promises[i])
		queue.mu.Unlock()
	}
	return nil
}

// cancel is called by the goroutine of a ticket that gives up. It takes nothing, also if it was admitted at that moment.
func (t *ticket) cancel(nows []time.Duration) {
	state := t.state
	t.state = ticketEnded
	switch state {
	case ticketQueued:
		t.leave(nows)
	case ticketAdmitted:
		for i, promise := range t.promises {
			t.slots[i].queue.handBack(nows[i], promise)
		}
	case ticketRefused, ticketEnded:
	}
}

func (t *ticket) leave(nows []time.Duration) {
	for i, w := range t.waiters {
		t.slots[i].queue.remove(nows[i], w)
	}
}
