package limiter

import (
	"math"
	"time"
)

// count counts the permits of a gauge in use, promised ones included.
type count struct {
	capacity   float64
	used       uint64
	takenSoFar uint64
}

// giveBack returns permits.
func (c *count) giveBack(n uint64) { c.used -= min(n, c.used) }

// whole returns the capacity in whole permits: 2.9 allows two.
func (c *count) whole() uint64 {
	if c.capacity >= math.MaxUint64 {
		return math.MaxUint64
	}
	return uint64(c.capacity)
}

func (c *count) getCapacity() float64 { return c.capacity }

func (c *count) setCapacity(_ time.Duration, capacity float64) { c.capacity = capacity }

func (c *count) inUse() uint64 { return c.used }

func (c *count) check(_ time.Duration, reserved, n uint64) (bool, time.Duration) {
	return saturatingAdd(saturatingAdd(c.used, reserved), n) <= c.whole(), Unknown
}

func (c *count) take(_ time.Duration, n uint64) bool {
	if whole := c.whole(); n > whole || c.used > whole-n {
		return false
	}
	c.used += n
	c.takenSoFar += n
	return true
}

func (c *count) readyIn(time.Duration, uint64) time.Duration { return Unknown }

func (c *count) maxAtOnce() (float64, bool) { return math.Floor(c.capacity), c.whole() > 0 }

func (c *count) saveFor(time.Duration, uint64) {}

func (c *count) stopSaving(time.Duration) {}

func (c *count) promise(n uint64) Promise { return Promise{N: n} }

func (c *count) claim(Promise) {}

func (c *count) taken() uint64 { return c.takenSoFar }

func (c *count) handBack(_ time.Duration, promise Promise) {
	c.takenSoFar -= min(promise.N, c.takenSoFar)
	c.giveBack(promise.N)
}

func (c *count) owed(time.Duration) uint64 { return 0 }
