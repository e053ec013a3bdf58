package limiter

import "math"

// MaxAmount is the maximum amount of servers.
const MaxAmount = 1e15

// sum is an exact sum of amounts, in units of 2⁻⁵². Every float64 from 1 upwards is a whole number of these units. Below 1
// an amount counts as the next whole number of units, so sums err upwards. Servers count in the same way.
type sum struct{ units uint128 }

const unitsPerOne = 1 << 52

// sumOf returns an amount from 0 to MaxAmount as a sum.
func sumOf(amount float64) sum { return sum{fromFloat(math.Ceil(amount * unitsPerOne))} }

func (s sum) plus(other sum) sum { return sum{s.units.add(other.units)} }

// minus returns the difference, or 0 if other is larger.
func (s sum) minus(other sum) sum { return sum{s.units.sub(other.units)} }

// atMost returns the smaller of two sums.
func (s sum) atMost(other sum) sum { return sum{min128(s.units, other.units)} }

func (s sum) isZero() bool { return s.units.isZero() }

func (s sum) less(other sum) bool { return s.units.less(other.units) }

// floor returns the sum, rounded down.
func (s sum) floor() float64 {
	near := s.units.float()
	for s.units.less(fromFloat(near)) {
		near = math.Nextafter(near, 0)
	}
	return near / unitsPerOne
}

// ceil returns the sum, rounded up.
func (s sum) ceil() float64 {
	near := s.units.float()
	for fromFloat(near).less(s.units) {
		near = math.Nextafter(near, math.Inf(1))
	}
	return near / unitsPerOne
}
