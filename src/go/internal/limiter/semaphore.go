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
type semaphore struct {
	meter      meter
	head, tail *waiter
	// until and then: at this time the lease expires, and the capacity becomes this.
	until time.Duration
	then  float64
	// waiting is the sum of permits that queued waiters want.
	waiting uint64
	// arrived counts the permits requested so far, and arrivedFreely those requested while the queue was empty.
	arrived       uint64
	arrivedFreely uint64
	// refunded counts the permits returned unused so far.
	refunded uint64
	// due is when the head of the queue can be admitted, or Unknown if that does not depend on time alone.
	due time.Duration
	// notifiedAt is the number of pending permits at the last notification of pressure.
	notifiedAt uint64
	onPressure func()
	// peak is the peak of permits in use and wanted since it was last read.
	peak uint64
	// queued is the total time with a non-empty queue, up to the moment it was last empty. queuedSince is since when it
	// has been non-empty, or Unknown.
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
	// ready is closed when the state changes.
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

// setCapacity sets the capacity, which holds until the lease expires, and the capacity that follows.
func (s *semaphore) setCapacity(now time.Duration, capacity float64, until time.Duration, then float64) {
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
	w := &waiter{n: n, ready: make(chan struct{}), prev: s.tail}
	if s.tail == nil {
		s.head = w
		s.queuedSince = now
	} else {
		s.tail.next = w
	}
	s.tail = w
	s.waiting += n
	s.raisePressure(now, before)
	if s.head == w {
		// The queue was empty and the meter has just refused: this only records the due time.
		s.admit(now)
	}
	return w, nil
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
		wasHead := s.head == w
		s.unlink(now, w)
		s.waiting -= w.n
		if wasHead {
			s.meter.stopSaving(now)
			s.admit(now)
		}
	case waiterAdmitted:
		s.meter.handBack(now, w.promise)
		s.admit(now)
	case waiterRefused:
	}
}

// admit admits waiters from the head of the queue while the meter allows it, and records when the next can be admitted.
func (s *semaphore) admit(now time.Duration) {
	s.due = Unknown
	for s.head != nil {
		w := s.head
		if !s.meter.take(now, w.n) {
			s.meter.saveFor(now, w.n)
			if wait := s.meter.readyIn(now, w.n); wait != Unknown {
				s.due = never
				if wait < never-now {
					s.due = now + wait
				}
			}
			return
		}
		s.waiting -= w.n
		w.promise = s.meter.promise(w.n)
		s.resolve(now, w, waiterAdmitted)
	}
}

func (s *semaphore) close(now time.Duration) {
	s.closed = true
	for s.head != nil {
		s.resolve(now, s.head, waiterRefused)
	}
	s.waiting = 0
	s.due = Unknown
	s.meter.stopSaving(now)
}

func (s *semaphore) resolve(now time.Duration, w *waiter, state waiterState) {
	s.unlink(now, w)
	w.state = state
	close(w.ready)
}

func (s *semaphore) unlink(now time.Duration, w *waiter) {
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
	if s.head == nil {
		s.queued += max(now-s.queuedSince, 0)
		s.queuedSince = Unknown
	}
}

// arrive counts a request.
func (s *semaphore) arrive(n uint64) {
	s.arrived += n
	if s.head == nil {
		s.arrivedFreely += n
	}
}

// takeUnqueued takes permits without queueing, if the queue is empty.
func (s *semaphore) takeUnqueued(now time.Duration, n uint64) bool {
	taken := n == 0 || s.head == nil && s.meter.take(now, n)
	demanded := s.demanded()
	if !taken {
		// A refused caller is demand, too.
		demanded += n
	}
	s.peak = max(s.peak, demanded)
	return taken
}

func (s *semaphore) demanded() uint64 { return s.meter.inUse() + s.waiting }

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

// queuedTime returns the total time with a non-empty queue.
func (s *semaphore) queuedTime(now time.Duration) time.Duration {
	if s.queuedSince == Unknown {
		return s.queued
	}
	return s.queued + max(now-s.queuedSince, 0)
}
