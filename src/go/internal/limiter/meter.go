package limiter

import (
	"math"
	"time"
)

// Promise is a number of permits that were taken for a waiter or a reservation, and may come back.
type Promise struct {
	// N is the number of permits.
	N uint64
	// era is the period in which it was made, as the meter counts periods.
	era uint64
}

// Unknown is the time until permits are available if that does not depend on time.
const Unknown = time.Duration(-1)

// meter decides when permits are available. Rates and gauges differ in their meter; the queue of waiters is the
// semaphore's. Time is the duration since the limiter was created.
//
// Permits are reserved for a waiter before its goroutine has run, and returned if it gives up first. Until then they are
// a Promise, as are those of a reservation until it is settled.
type meter interface {
	// getCapacity returns the current capacity.
	getCapacity() float64
	// setCapacity changes the capacity.
	setCapacity(now time.Duration, capacity float64)
	// inUse returns the permits in use that will be returned; 0 for a rate.
	inUse() uint64
	// check returns whether n permits are available beyond reserved ones. If not, it returns the time until they are, or
	// Unknown if that does not depend on time alone. It takes nothing.
	check(now time.Duration, reserved, n uint64) (ok bool, readyIn time.Duration)
	// take takes n permits, or none.
	take(now time.Duration, n uint64) bool
	// readyIn returns the time until n permits are available, if nothing else is taken.
	readyIn(now time.Duration, n uint64) time.Duration
	// maxAtOnce returns the maximum number of permits that can be available at once; false without capacity.
	maxAtOnce() (float64, bool)
	// saveFor says that the head of the queue needs n permits: save up for it.
	saveFor(now time.Duration, n uint64)
	// stopSaving says that the head of the queue has left.
	stopSaving(now time.Duration)
	// promise turns the n permits that were just taken into a promise.
	promise(n uint64) Promise
	// claim ends a promise whose permits are used.
	claim(promise Promise)
	// handBack ends a promise whose permits are not used.
	handBack(now time.Duration, promise Promise)
	// taken returns the permits taken and not returned so far.
	taken() uint64
	// owed returns the debt in permits. No caller is admitted before it is paid.
	owed(now time.Duration) uint64
}

// saturatingAdd returns a + b, or the largest number if that is larger.
func saturatingAdd(a, b uint64) uint64 {
	if sum := a + b; sum >= a {
		return sum
	}
	return math.MaxUint64
}
