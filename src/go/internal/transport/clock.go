package transport

import (
	"sync/atomic"
	"time"
)

// Clock is the time since the client started, including the time during which the machine was suspended. The monotonic
// clock stops during a suspend, but leases do not.
type Clock struct {
	// Start is when the client started.
	Start time.Time
	// boot is the same time on a clock that advances during a suspend.
	boot time.Duration
	// suspended is the largest difference between the clocks so far. The measured difference varies a little, and time
	// must not run backwards.
	suspended atomic.Int64
}

var processStart = time.Now()

// monotonic returns the time since the process was started on the monotonic clock.
func monotonic() time.Duration { return time.Since(processStart) }

// StartClock starts a clock.
func StartClock() *Clock {
	return &Clock{boot: bootTime(), Start: time.Now()}
}

// Now returns the time since the start, and how much of it the machine was suspended.
func (c *Clock) Now() (now, suspended time.Duration) {
	awake := time.Since(c.Start)
	// Delays between the two readings make time advance, never stop.
	measured := int64(bootTime() - c.boot - awake)
	for {
		known := c.suspended.Load()
		if measured <= known || c.suspended.CompareAndSwap(known, measured) {
			suspended = time.Duration(max(measured, known))
			return awake + suspended, suspended
		}
	}
}
