package limiter

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// ErrClosed says that the limiter was closed. Nothing was taken.
var ErrClosed = errors.New("leaseway: the limiter was closed")

// maxTimer is the longest timer. At its end the head of the queue is checked again.
const maxTimer = time.Hour

// created is the number of queues created so far.
var created atomic.Uint64

// queue adds a lock, a clock and a timer to a semaphore. The timer runs only while callers wait for time to pass.
type queue struct {
	// rank is the place in the order in which several queues are locked.
	rank uint64
	mu   sync.Mutex
	semaphore
	start time.Time
	timer *time.Timer
	// armed is the time that the timer is set for, or never.
	armed time.Duration
}

func (q *queue) init(start time.Time, meter meter, onPressure func()) {
	q.semaphore = newSemaphore(meter, onPressure)
	q.rank = created.Add(1)
	q.start = start
	q.armed = never
}

// now returns the time since the start on the monotonic clock.
func (q *queue) now() time.Duration { return time.Since(q.start) }

// lock begins a use of the semaphore.
func (q *queue) lock() time.Duration {
	now := q.now()
	q.mu.Lock()
	q.tick(now)
	return now
}

// unlock ends a use of the semaphore that may have changed when its head is due. No other queue may be locked.
func (q *queue) unlock() {
	if tickets := q.unlockOnly(); tickets != nil {
		advanceAll(tickets)
	}
}

// unlockOnly is as unlock, but returns the tickets to advance when no queue is locked.
func (q *queue) unlockOnly() []*ticket {
	if at := q.wake(); at != q.armed {
		q.arm(at)
	}
	tickets := q.advanced
	q.advanced = nil
	q.mu.Unlock()
	return tickets
}

func (q *queue) arm(at time.Duration) {
	q.armed = at
	if at == never {
		q.timer.Stop()
		return
	}
	// A goroutine that was held up between reading the clock and taking the lock may see a time in the past.
	wait := min(at-q.now(), maxTimer)
	if q.timer == nil {
		q.timer = time.AfterFunc(wait, q.fire)
		return
	}
	q.timer.Reset(wait)
}

func (q *queue) fire() {
	q.lock()
	q.armed = never
	q.unlock()
}

// wait waits for n permits. Like the end of the context, the closing of gone ends it, but without an error: then admitted
// is false. gone may be nil.
func (q *queue) wait(ctx context.Context, n uint64, gone <-chan struct{}) (admitted bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	now := q.lock()
	w, err := q.acquire(now, n)
	q.unlock()
	if w == nil {
		return err == nil, err
	}
	select {
	case <-w.ready:
		q.mu.Lock()
		defer q.mu.Unlock()
		err := q.finish(w)
		return err == nil, err
	case <-gone:
	case <-ctx.Done():
		err = ctx.Err()
	}
	now = q.lock()
	defer q.unlock()
	q.leave(now, w)
	return false, err
}

func (q *queue) setUsable(capacity float64, until time.Duration, then float64) {
	now := q.lock()
	defer q.unlock()
	q.setCapacity(now, capacity, until, then)
}

// Capacity returns the current capacity.
func (q *queue) Capacity() float64 {
	q.lock()
	defer q.unlock()
	return q.meter.getCapacity()
}

// Close closes the limiter: waiting and new callers get ErrClosed.
func (q *queue) Close() {
	now := q.lock()
	defer q.unlock()
	q.close(now)
}

// Waiting returns the permits that are waited for now.
func (q *queue) Waiting() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting
}

// Arrived returns the permits requested so far: granted, waited for, cancelled, refused or charged.
func (q *queue) Arrived() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.arrived
}

// Taken returns the permits taken and not returned so far.
func (q *queue) Taken() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.meter.taken()
}

// Rate admits callers at a rate.
//
//   - In any period of T seconds at most capacity · T + burst permits are taken, plus the debt at its end if callers are
//     charged.
//   - While a caller waits no capacity is lost, unless timers are later than the burst allows for.
//   - It starts without capacity and without credit, so restarting a process gains nothing.
type Rate struct {
	queue
	bucket *bucket
}

// NewRate returns a limiter that admits no caller before the first SetUsable. Times count from start. It calls
// onPressure, with its lock held, when a caller has to queue or debt arises, and each time the number of pending permits
// has doubled since.
func NewRate(start time.Time, burst Burst, maxDebt uint64, onPressure func()) *Rate {
	r := &Rate{bucket: newBucket(burst)}
	r.bucket.maxDebt = units(min(maxDebt, maxPermits))
	r.init(start, r.bucket, onPressure)
	return r
}

// SetUsable sets the permits per second until the lease expires, and the capacity from then on. The server may set the
// burst to the capacity of a duration; a negative one means that it does not.
func (r *Rate) SetUsable(capacity float64, until time.Duration, then float64, buffer time.Duration) {
	now := r.lock()
	defer r.unlock()
	r.bucket.settle(now)
	r.bucket.buffer = buffer
	r.setCapacity(now, capacity, until, then)
}

// Wait waits for n permits at once. Meanwhile no caller behind this one is admitted, so a large request is not starved
// by small ones. If the context ends first, nothing is taken.
func (r *Rate) Wait(ctx context.Context, n uint64) error {
	_, err := r.wait(ctx, n, nil)
	return err
}

// WaitUnless waits for a permit until gone is closed. It returns whether it has one.
func (r *Rate) WaitUnless(ctx context.Context, gone <-chan struct{}) (admitted bool, err error) {
	return r.wait(ctx, 1, gone)
}

// TryAcquire takes n permits if they are available and no caller waits. Refused permits are demand, too.
func (r *Rate) TryAcquire(n uint64) bool {
	now := r.now()
	r.mu.Lock()
	taken := r.tryAcquire(now, n)
	r.unlock()
	return taken
}

// TryReserve reserves n permits if they are available and no caller waits.
func (r *Rate) TryReserve(n uint64) (Promise, bool) {
	now := r.lock()
	defer r.unlock()
	if !r.tryAcquire(now, n) {
		return Promise{}, false
	}
	return r.bucket.promise(n), true
}

// Reserve waits for n permits as Wait does, for work whose cost is known only at its end.
func (r *Rate) Reserve(ctx context.Context, n uint64) (Promise, error) {
	if _, err := r.wait(ctx, n, nil); err != nil {
		return Promise{}, err
	}
	return r.promiseTaken(n), nil
}

// promiseTaken turns n permits that were just taken into a promise.
func (r *Rate) promiseTaken(n uint64) Promise {
	r.lock()
	defer r.unlock()
	return r.bucket.promise(n)
}

// Settle ends a promise: it returns unused permits, and charges usage beyond it as Charge does.
func (r *Rate) Settle(promise Promise, used uint64) (uncharged uint64) {
	kept := min(used, promise.N)
	now := r.lock()
	r.bucket.usePart(now, promise, kept)
	if kept < promise.N {
		r.refunded += promise.N - kept
		r.admit(now)
	}
	r.unlock()
	return r.Charge(used - kept)
}

// Charge charges n permits that were used already. They are taken from the available credit, including credit saved for
// a waiting caller; the rest becomes debt. No caller is admitted before the debt is paid. Charge returns the permits beyond
// the maximum debt, which were not charged.
func (r *Rate) Charge(n uint64) (uncharged uint64) {
	if n == 0 {
		return 0
	}
	now := r.lock()
	defer r.unlock()
	before := r.pending(now)
	charged := r.bucket.charge(now, n)
	// A charge is demand, like a request.
	r.arrive(charged)
	// The head of the queue has to wait longer now.
	r.admit(now)
	if r.pending(now) > before {
		r.raisePressure(now, before)
	}
	return n - charged
}

// Refund returns n permits that were taken and not used. The limiter assumes that they are those taken last, and returns
// at most as many as were taken. They pay debt first. Afterwards the limiter has the credit that it would have if they
// had never been taken, so refunds never let more through than capacity and burst allow.
func (r *Rate) Refund(n uint64) {
	now := r.lock()
	defer r.unlock()
	r.refunded += r.bucket.refund(now, n)
	r.admit(now)
}

// Debt returns the current debt in permits, rounded up.
func (r *Rate) Debt() uint64 {
	now := r.lock()
	defer r.unlock()
	return r.bucket.owed(now)
}

// State returns the current state.
func (r *Rate) State() RateState {
	now := r.lock()
	defer r.unlock()
	return r.bucket.state(now)
}

// ReadyIn returns how long a new caller would wait for n permits if nothing changes, or Unknown without capacity.
func (r *Rate) ReadyIn(n uint64) time.Duration {
	now := r.lock()
	defer r.unlock()
	if r.bucket.isUnlimited() {
		return 0
	}
	return r.bucket.readyIn(now, r.waiting+r.reserved+n)
}

// Sample returns a reading for an estimate of demand.
func (r *Rate) Sample() Sample {
	now := r.lock()
	defer r.unlock()
	return Sample{
		Count:    r.arrived,
		Freely:   r.arrivedFreely,
		Refunded: r.refunded,
		Waiting:  r.pending(now),
		Queued:   r.queuedTime(now),
		Capacity: r.bucket.capacity,
	}
}

// Usage returns the permits taken so far, and the total time in which the burst was not full: the time in which the
// capacity was in use.
func (r *Rate) Usage() (taken uint64, recharging time.Duration) {
	now := r.lock()
	defer r.unlock()
	r.bucket.settle(now)
	return r.bucket.taken(), r.bucket.recharging
}

// Gauge admits callers while fewer permits are in use than the capacity, rounded down. After a cut no caller is admitted
// until enough permits were returned.
type Gauge struct {
	queue
	count *count
}

// NewGauge returns a limiter that admits no caller before the first SetUsable. See NewRate.
func NewGauge(start time.Time, onPressure func()) *Gauge {
	g := &Gauge{count: &count{}}
	g.init(start, g.count, onPressure)
	return g
}

// SetUsable sets the number of permits that may be in use until the lease expires, and the number from then on.
func (g *Gauge) SetUsable(capacity float64, until time.Duration, then float64) {
	g.setUsable(capacity, until, then)
}

// Acquire waits for n permits at once. Meanwhile no caller behind this one is admitted. If the context ends first,
// nothing is taken.
func (g *Gauge) Acquire(ctx context.Context, n uint64) error {
	_, err := g.wait(ctx, n, nil)
	return err
}

// TryAcquire takes n permits if they are available and no caller waits.
func (g *Gauge) TryAcquire(n uint64) bool {
	now := g.now()
	g.mu.Lock()
	taken := g.tryAcquire(now, n)
	g.unlock()
	return taken
}

// Release returns n permits.
func (g *Gauge) Release(n uint64) {
	now := g.lock()
	defer g.unlock()
	g.count.giveBack(n)
	g.admit(now)
}

// InUse returns the permits in use now.
func (g *Gauge) InUse() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.count.used
}

// TakePeak returns the peak since the last call of the sum of permits in use, waited for and refused. It resets the
// peak, so it should have one caller.
func (g *Gauge) TakePeak() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	peak := max(g.peak, g.demanded())
	g.peak = g.demanded()
	return peak
}

// Outstanding returns the amount to report to the server: all permits in use if they exceed the capacity, as after a
// cut, else 0. The server counts the larger of this and the lease as held.
func (g *Gauge) Outstanding() uint64 {
	g.lock()
	defer g.unlock()
	if float64(g.count.used) > g.count.capacity {
		return g.count.used
	}
	return 0
}
