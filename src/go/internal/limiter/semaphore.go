package limiter

import (
	"math"
	"time"
)

// never is after every other time.
const never = time.Duration(math.MaxInt64)

// semaphore is a fair semaphore over a meter. Callers are served first come, first served. The semaphore keeps the queue
// of waiters; the meter decides when the waiter at the head can be admitted. It has no clock and no lock: its owner calls
// tick at the time that due says.
//
// A request for permits of several limiters waits in the queues of all of them, see ticket. When it gets to the head of a
// queue and its permits are available, they are reserved: it keeps its place, and waiters behind it are admitted from the
// rest. The frontier is the first waiter whose permits are neither granted nor reserved.
type semaphore struct {
	meter      meter
	head, tail *waiter
	frontier   *waiter
	// reserved is the sum of permits reserved for the waiters ahead of the frontier.
	reserved uint64
	// joined is the number of waiters that have joined so far.
	joined uint64
	// advanced has the tickets whose permits are reserved now, or that were refused, for the owner to advance.
	advanced []*ticket
	// until and then: at this time the lease expires, and the capacity becomes this.
	until time.Duration
	then  float64
	// waiting is the sum of permits that the waiters from the frontier on want.
	waiting uint64
	// arrived counts the permits requested so far, and arrivedFreely those requested while no caller waited.
	arrived       uint64
	arrivedFreely uint64
	// refunded counts the permits returned unused so far.
	refunded uint64
	// due is when the frontier can be admitted, or Unknown if that does not depend on time alone.
	due time.Duration
	// notifiedAt is the number of pending permits at the last notification of pressure.
	notifiedAt uint64
	onPressure func()
	// peak is the peak of permits in use and wanted since it was last read.
	peak uint64
	// queued is the total time with waiting callers, up to the last moment without any. queuedSince is since when callers
	// have been waiting, or Unknown.
	queued      time.Duration
	queuedSince time.Duration
	closed      bool
}

type waiterState int

const (
	waiterQueued waiterState = iota
	// waiterAdmitted was granted its permits, but its goroutine has not run since.
	waiterAdmitted
	// waiterRefused means that the limiter was closed first.
	waiterRefused
)

// waiter is an entry of the queue.
type waiter struct {
	n          uint64
	state      waiterState
	promise    Promise
	prev, next *waiter
	// place is the number of waiters that had joined before.
	place uint64
	// ticket is set if it waits in the queues of other semaphores, too.
	ticket *ticket
	// ready is closed when the state changes. It is nil if there is a ticket.
	ready chan struct{}
}

func newSemaphore(meter meter, onPressure func()) semaphore {
	if onPressure == nil {
		onPressure = func() {}
	}
	return semaphore{meter: meter, until: never, due: Unknown, queuedSince: Unknown, onPressure: onPressure}
}

// tick brings the semaphore up to now: the lease may have expired, and waiters may be due. Every use begins with it.
func (s *semaphore) tick(now time.Duration) {
	if now >= s.until {
		s.setCapacity(s.until, s.then, never, 0)
	}
	if s.due != Unknown && now >= s.due {
		s.admit(now)
	}
}

// wake returns when tick has to be called at the latest, or never.
func (s *semaphore) wake() time.Duration {
	if s.due == Unknown {
		return never
	}
	return s.due
}

// setCapacity sets the capacity, which holds until the lease expires, and the capacity that follows. If the lease has
// expired already, only the latter counts.
func (s *semaphore) setCapacity(now time.Duration, capacity float64, until time.Duration, then float64) {
	if now >= until {
		capacity, until, then = then, never, 0
	}
	s.until, s.then = until, then
	if bucket, isBucket := s.meter.(*bucket); isBucket && until == never {
		// The burst of a pool counts while its lease is in force.
		bucket.buffer = -1
	}
	s.meter.setCapacity(now, capacity)
	s.admit(now)
}

// tryAcquire takes n permits if they are available and no caller waits.
func (s *semaphore) tryAcquire(now time.Duration, n uint64) bool {
	s.tick(now)
	if s.closed {
		return false
	}
	if s.isTooMuch(n) {
		return false
	}
	s.arrive(n)
	return s.takeUnqueued(now, n)
}

// isTooMuch returns whether n permits can never be available at once at the current capacity.
func (s *semaphore) isTooMuch(n uint64) bool {
	most, known := s.meter.maxAtOnce()
	return known && most < float64(n)
}

// acquire takes n permits, or joins the queue and returns the waiter.
func (s *semaphore) acquire(now time.Duration, n uint64) (*waiter, error) {
	s.tick(now)
	if s.closed {
		return nil, ErrClosed
	}
	s.arrive(n)
	if s.takeUnqueued(now, n) {
		return nil, nil
	}
	before := s.pending(now)
	w := &waiter{n: n, ready: make(chan struct{})}
	s.push(now, w)
	s.raisePressure(now, before)
	if s.frontier == w {
		// Nobody waited and the meter has just refused: this only records the due time.
		s.admit(now)
	}
	return w, nil
}

// push appends a waiter to the queue.
func (s *semaphore) push(now time.Duration, w *waiter) {
	w.place, w.prev = s.joined, s.tail
	s.joined++
	if s.tail == nil {
		s.head = w
	} else {
		s.tail.next = w
	}
	s.tail = w
	if s.frontier == nil {
		s.setFrontier(now, w)
	}
	s.waiting += w.n
}

// setFrontier sets the frontier; nil if no caller waits.
func (s *semaphore) setFrontier(now time.Duration, w *waiter) {
	switch {
	case w == nil && s.queuedSince != Unknown:
		s.queued += max(now-s.queuedSince, 0)
		s.queuedSince = Unknown
	case w != nil && s.queuedSince == Unknown:
		s.queuedSince = now
	}
	s.frontier = w
}

// finish is called by the goroutine of a waiter whose state has changed.
func (s *semaphore) finish(w *waiter) error {
	if w.state == waiterRefused {
		return ErrClosed
	}
	s.meter.claim(w.promise)
	return nil
}

// leave is called by the goroutine of a waiter that gives up. It takes nothing, also if it was its turn at that moment.
func (s *semaphore) leave(now time.Duration, w *waiter) {
	s.tick(now)
	switch w.state {
	case waiterQueued:
		s.remove(now, w)
	case waiterAdmitted:
		s.handBack(now, w.promise)
	case waiterRefused:
	}
}

// remove takes a waiter out of the queue, if it is still there, and admits those that it kept waiting.
func (s *semaphore) remove(now time.Duration, w *waiter) {
	if w.state == waiterQueued && s.unlink(now, w) {
		s.admit(now)
	}
}

// handBack ends a promise whose permits are not used.
func (s *semaphore) handBack(now time.Duration, promise Promise) {
	s.meter.handBack(now, promise)
	s.admit(now)
}

// isAhead returns whether a queued waiter is ahead of the frontier, so that its permits are reserved.
func (s *semaphore) isAhead(w *waiter) bool { return s.frontier == nil || w.place < s.frontier.place }

// unlink takes a queued waiter out of the queue. It returns whether others may be admitted now.
func (s *semaphore) unlink(now time.Duration, w *waiter) bool {
	isFront, isAhead, isFrontier := s.head == w, s.isAhead(w), s.frontier == w
	if isAhead {
		s.reserved -= w.n
	} else {
		s.waiting -= w.n
	}
	if isFrontier {
		s.setFrontier(now, w.next)
	}
	s.detach(w)
	if isFront {
		s.meter.stopSaving(now)
	}
	return isAhead || isFrontier
}

// detach takes a waiter out of the list.
func (s *semaphore) detach(w *waiter) {
	if w.prev == nil {
		s.head = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		s.tail = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next = nil, nil
}

// admit admits waiters from the frontier on while the meter allows it, and records when the next can be admitted.
func (s *semaphore) admit(now time.Duration) {
	if s.reserved > 0 {
		if ok, _ := s.meter.check(now, s.reserved, 0); !ok {
			// The capacity was cut, or permits were charged.
			s.waiting += s.reserved
			s.reserved = 0
			s.setFrontier(now, s.head)
		}
	}
	s.advance(now)
	s.saveForFront(now)
}

// saveForFront saves up for the waiter at the front, also if its permits are reserved. Taking permits ends that.
func (s *semaphore) saveForFront(now time.Duration) {
	if s.head != nil {
		s.meter.saveFor(now, s.head.n)
	}
}

// advance moves the frontier, and records when it can be moved again.
func (s *semaphore) advance(now time.Duration) {
	s.due = Unknown
	for s.frontier != nil {
		w := s.frontier
		ok, wait := s.meter.check(now, s.reserved, w.n)
		if !ok {
			if wait != Unknown {
				s.due = never
				if wait < never-now {
					s.due = now + wait
				}
			}
			return
		}
		s.setFrontier(now, w.next)
		s.waiting -= w.n
		if w.ticket != nil {
			s.advanced = append(s.advanced, w.ticket)
			s.reserved += w.n
			continue
		}
		s.meter.take(now, w.n)
		w.promise = s.meter.promise(w.n)
		s.resolve(w, waiterAdmitted)
	}
}

func (s *semaphore) close(now time.Duration) {
	s.closed = true
	for s.head != nil {
		s.resolve(s.head, waiterRefused)
	}
	s.setFrontier(now, nil)
	s.waiting, s.reserved = 0, 0
	s.due = Unknown
	s.meter.stopSaving(now)
}

func (s *semaphore) resolve(w *waiter, state waiterState) {
	s.detach(w)
	w.state = state
	if w.ticket != nil {
		s.advanced = append(s.advanced, w.ticket)
		return
	}
	close(w.ready)
}

// arrive counts a request.
func (s *semaphore) arrive(n uint64) {
	s.arrived += n
	if s.frontier == nil {
		s.arrivedFreely += n
	}
}

// areFree returns whether n permits can be taken beyond claimed ones without overtaking a waiter.
func (s *semaphore) areFree(now time.Duration, claimed, n uint64) bool {
	if s.frontier != nil {
		return false
	}
	ok, _ := s.meter.check(now, saturatingAdd(s.reserved, claimed), n)
	return ok
}

// takeUnqueued takes permits without queueing, if no caller waits.
func (s *semaphore) takeUnqueued(now time.Duration, n uint64) bool {
	taken := n == 0
	switch {
	case taken:
	case s.reserved == 0:
		taken = s.frontier == nil && s.meter.take(now, n)
	case s.areFree(now, 0, n):
		taken = s.meter.take(now, n)
		s.saveForFront(now)
	}
	demanded := s.demanded()
	if !taken {
		// A refused caller is demand, too.
		demanded += n
	}
	s.peak = max(s.peak, demanded)
	return taken
}

func (s *semaphore) demanded() uint64 { return s.meter.inUse() + s.waiting + s.reserved }

// pending returns the permits that are waited for or owed.
func (s *semaphore) pending(now time.Duration) uint64 { return s.waiting + s.meter.owed(now) }

// raisePressure is called when more permits are pending than before. It notifies when permits become pending, and again
// each time their number has doubled.
func (s *semaphore) raisePressure(now time.Duration, before uint64) {
	if before == 0 {
		s.notifiedAt = 0
	}
	if pending := s.pending(now); pending >= max(2*s.notifiedAt, 1) {
		s.notifiedAt = pending
		s.onPressure()
	}
}

// queuedTime returns the total time with waiting callers.
func (s *semaphore) queuedTime(now time.Duration) time.Duration {
	if s.queuedSince == Unknown {
		return s.queued
	}
	return s.queued + max(now-s.queuedSince, 0)
}
