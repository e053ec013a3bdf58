package limiter

import (
	"math"
	"time"
)

const (
	// unitsPerRate is the number of units per nanosecond at one permit per second.
	unitsPerRate = 0x1p40

	// maxPermits bounds permits, and permits per second.
	maxPermits = 1e15

	// DefaultMaxDebt is the default maximum debt, in permits.
	DefaultMaxDebt = 1_000_000

	// smoothSeconds is how late a waiter may be woken without losing capacity. Timers are a millisecond late, and later
	// still on a busy machine.
	smoothSeconds = 0.020
)

// unitsPerPermit is 2^40 · 10^9.
var unitsPerPermit = uint128{lo: 1_000_000_000}.shiftLeft(40)

// BurstKind selects the meaning of a Burst.
type BurstKind int

const (
	// SmoothBurst is one permit plus 20 ms of capacity: as smooth as timers allow without losing capacity.
	SmoothBurst BurstKind = iota
	// WindowBurst is the capacity of a duration. When the capacity is cut, saved permits are cut in proportion, so
	// limiters that share a capacity never save up more than it provides in total.
	WindowBurst
	// PermitsBurst is a fixed number of permits.
	PermitsBurst
)

// Burst is how much unused capacity a rate may save up and use at once. In any period of T seconds a limiter admits at
// most capacity · T + burst. The burst is at least one permit. A caller that waits for more permits than the burst is
// admitted once all of them are saved up.
type Burst struct {
	Kind    BurstKind
	Window  time.Duration
	Permits float64
}

// permits returns the number of permits that may be saved up at this capacity: at least one, unlimited if the capacity
// is.
func (b Burst) permits(capacity float64) float64 {
	permits := 1 + capacity*smoothSeconds
	switch {
	case b.Kind == WindowBurst:
		permits = capacity * b.Window.Seconds()
	case b.Kind == PermitsBurst && math.IsInf(capacity, 1):
		permits = capacity
	case b.Kind == PermitsBurst:
		permits = b.Permits
	}
	// An unlimited capacity with a window of zero is NaN.
	if permits > 1 {
		return permits
	}
	return 1
}

// within is as permits, if the server sets the burst to the capacity of a duration; a negative one means that it does
// not. A smaller choice of the owner is respected, down to the minimum that timers need.
func (b Burst) within(capacity float64, buffer time.Duration) float64 {
	if buffer < 0 {
		return b.permits(capacity)
	}
	set := max(capacity*buffer.Seconds(), Burst{}.permits(capacity))
	// An unlimited capacity needs no savings.
	if b.Kind == SmoothBurst || math.IsInf(capacity, 1) {
		return set
	}
	return min(set, b.permits(capacity))
}

// RateState is the state of a rate.
type RateState struct {
	// Available has the permits available now, even if others wait for them. It is infinite if unlimited, and negative if
	// there is debt.
	Available float64
	// Burst is the maximum that can be saved up.
	Burst float64
	// Capacity is in permits per second.
	Capacity float64
}

// bucket is a token bucket that does not drift. Credit grows with time up to the burst, and is spent by callers.
//
// A permit is 2^40 · 10^9 units of credit, so at c permits per second a nanosecond brings floor(c · 2^40) whole units.
// Credit is therefore never rounded, and it makes no difference how often the bucket is settled. The capacity is rounded
// down once, when it is set, by less than 2^-40 permits per second.
//
// Debt is negative credit. While there is debt there is no credit.
type bucket struct {
	burst Burst
	// buffer is the burst set by the server; negative if it sets none.
	buffer   time.Duration
	capacity float64
	// rate is in units per nanosecond.
	rate uint128
	// depth is the maximum credit in units, unless a waiter saves up for more.
	depth   uint128
	credit  uint128
	debt    uint128
	maxDebt uint128
	// saving is the price of the head of the queue in units. Credit may grow up to it.
	saving  uint128
	returns returns
	// settled is the time up to which credit has been computed.
	settled    time.Duration
	takenUnits uint64
	// recharging is the total time in which the bucket was not full.
	recharging time.Duration
}

// newBucket returns an empty bucket without capacity.
func newBucket(burst Burst) *bucket {
	b := &bucket{burst: burst, buffer: -1, maxDebt: units(DefaultMaxDebt)}
	b.depth = depth(b.permits())
	return b
}

func (b *bucket) isUnlimited() bool { return math.IsInf(b.capacity, 1) }

func (b *bucket) state(now time.Duration) RateState {
	b.settle(now)
	state := RateState{Burst: b.permits(), Capacity: b.capacity}
	switch {
	case b.isUnlimited():
		state.Available = math.Inf(1)
	case !b.debt.isZero():
		state.Available = -b.debt.float() / unitsPerPermit.float()
	case !b.rate.isZero():
		state.Available = b.credit.float() / unitsPerPermit.float()
	}
	return state
}

// setCapacity changes the capacity. Time up to now counts at the old rate. Credit beyond the new burst is dropped, except
// for what the head of the queue is saving up.
func (b *bucket) setCapacity(now time.Duration, capacity float64) {
	b.settle(now)
	b.capacity = capacity
	if b.isUnlimited() {
		b.rate = maxUint128
		b.debt = uint128{}
	} else {
		// Multiplying by a power of two is exact; the conversion truncates.
		b.rate = fromFloat(min(capacity, maxPermits) * unitsPerRate)
	}
	b.depth = depth(b.permits())
	b.dropOverflow()
}

func (b *bucket) getCapacity() float64 { return b.capacity }

func (b *bucket) inUse() uint64 { return 0 }

// charge takes n permits that were used already, from the credit first and then as debt. It returns the number of
// charged permits, which is less than n only if the maximum debt is reached.
func (b *bucket) charge(now time.Duration, n uint64) uint64 {
	b.settle(now)
	charged := n
	if !b.isUnlimited() {
		charged = min(n, whole(b.credit.add(b.maxDebt.sub(b.debt))))
		price := units(charged)
		atOnce := min128(price, b.credit)
		b.credit = b.credit.sub(atOnce)
		b.debt = b.debt.add(price.sub(atOnce))
		b.returns.take(price)
		b.dropOverflow()
	}
	b.takenUnits += charged
	return charged
}

// refund returns n of the permits taken last. The result is at most the number that were taken.
func (b *bucket) refund(now time.Duration, n uint64) uint64 {
	b.settle(now)
	refunded := min(n, b.takenUnits)
	b.takenUnits -= refunded
	b.addCredit(b.returns.refund(units(refunded)))
	return refunded
}

// usePart ends a promise of which a number of permits were used.
func (b *bucket) usePart(now time.Duration, promise Promise, used uint64) {
	used = min(used, promise.N)
	b.handBack(now, Promise{promise.N - used, promise.era})
	b.claim(Promise{used, promise.era})
}

func (b *bucket) permits() float64 { return b.burst.within(b.capacity, b.buffer) }

// settle computes the credit up to now. Time never runs backwards.
func (b *bucket) settle(now time.Duration) {
	passed := now - b.settled
	if passed <= 0 {
		return
	}
	b.settled = now
	gain := b.rate.mul(uint64(passed))
	switch room := b.room(); {
	case room.isZero():
	case gain.less(room):
		b.recharging += passed
	default:
		// Rounded, because this is a statistic.
		b.recharging += time.Duration(room.float() / b.rate.float())
	}
	b.addCredit(gain)
	b.dropOverflow()
}

// addCredit adds credit, after paying debt.
func (b *bucket) addCredit(gain uint128) {
	paid := min128(gain, b.debt)
	b.debt = b.debt.sub(paid)
	b.credit = b.credit.add(gain.sub(paid))
}

// dropOverflow drops credit above the maximum.
func (b *bucket) dropOverflow() {
	b.credit = min128(b.credit, b.ceiling())
	b.returns.cut(b.room())
}

// ceiling returns the maximum credit now.
func (b *bucket) ceiling() uint128 { return max128(b.depth, b.saving) }

// room returns the distance of credit from its maximum.
func (b *bucket) room() uint128 { return b.ceiling().sub(b.credit).add(b.debt) }

func (b *bucket) check(now time.Duration, reserved, n uint64) (bool, time.Duration) {
	b.settle(now)
	all := saturatingAdd(reserved, n)
	price := units(all)
	if b.isUnlimited() || !b.rate.isZero() && !b.credit.less(price) {
		return true, 0
	}
	if reserved > 0 && b.ceiling().less(price) {
		// Credit beyond the ceiling is dropped, so the reserved permits have to be taken first.
		return false, Unknown
	}
	return false, b.readyIn(now, all)
}

func (b *bucket) take(now time.Duration, n uint64) bool {
	b.settle(now)
	if b.isUnlimited() {
		b.saving = uint128{}
	} else {
		price := units(n)
		if b.rate.isZero() || b.credit.less(price) {
			return false
		}
		b.credit = b.credit.sub(price)
		b.returns.take(price)
		if !b.saving.isZero() {
			b.saving = uint128{}
			b.dropOverflow()
		}
	}
	b.takenUnits += n
	return true
}

func (b *bucket) readyIn(now time.Duration, n uint64) time.Duration {
	b.settle(now)
	if b.rate.isZero() {
		return Unknown
	}
	missing := units(n).add(b.debt).sub(b.credit)
	return time.Duration(min(missing.divUp(b.rate), math.MaxInt64))
}

func (b *bucket) maxAtOnce() (float64, bool) { return b.permits(), !b.rate.isZero() }

func (b *bucket) saveFor(now time.Duration, n uint64) {
	b.settle(now)
	b.saving = units(n)
}

func (b *bucket) stopSaving(now time.Duration) {
	b.settle(now)
	b.saving = uint128{}
	b.dropOverflow()
}

func (b *bucket) promise(n uint64) Promise { return Promise{n, b.returns.promise(units(n))} }

func (b *bucket) claim(promise Promise) { b.returns.claim(units(promise.N), promise.era) }

func (b *bucket) taken() uint64 { return b.takenUnits }

func (b *bucket) handBack(now time.Duration, promise Promise) {
	b.settle(now)
	b.takenUnits -= min(promise.N, b.takenUnits)
	b.addCredit(b.returns.end(units(promise.N), promise.era))
}

func (b *bucket) owed(now time.Duration) uint64 {
	b.settle(now)
	if b.debt.isZero() {
		return 0
	}
	return whole(b.debt.add(unitsPerPermit.sub(uint128{0, 1})))
}

// depth converts permits to units, as exactly as rates are.
func depth(permits float64) uint128 {
	return fromFloat(min(permits, maxPermits) * unitsPerRate).mul(1_000_000_000)
}

func units(permits uint64) uint128 { return unitsPerPermit.mul(permits) }

// whole returns the whole permits in units.
func whole(units uint128) uint64 { return units.shiftRight(40).div(uint128{lo: 1_000_000_000}) }
