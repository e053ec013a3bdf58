package balancer

import "math/bits"

// int128 is a signed integer in two's complement.
type int128 struct {
	hi int64
	lo uint64
}

func fromInt64(n int64) int128 { return int128{n >> 63, uint64(n)} }

func fromUint64(n uint64) int128 { return int128{0, n} }

// product returns a · b, which has to be less than 2^127.
func product(a, b uint64) int128 {
	hi, lo := bits.Mul64(a, b)
	return int128{int64(hi), lo}
}

func (a int128) add(b int128) int128 {
	lo, carry := bits.Add64(a.lo, b.lo, 0)
	return int128{a.hi + b.hi + int64(carry), lo}
}

func (a int128) sub(b int128) int128 {
	lo, borrow := bits.Sub64(a.lo, b.lo, 0)
	return int128{a.hi - b.hi - int64(borrow), lo}
}

func (a int128) neg() int128 { return int128{}.sub(a) }

func (a int128) isNegative() bool { return a.hi < 0 }

func (a int128) isZero() bool { return a == int128{} }

// saturated returns a as an unsigned integer of 64 bits, or the largest one. a must not be negative.
func (a int128) saturated() uint64 {
	if a.hi != 0 {
		return ^uint64(0)
	}
	return a.lo
}

// limit is the maximum of scaled statuses, which prevents overflows in any sequence of changes. It takes a lead of 2^37
// picks to reach it.
var limit = int128{1 << 36, 0}

// scaled returns status · new / old, rounded toward 0 and at most limit; it returns status if old is 0.
func scaled(status int128, new, old uint64) int128 {
	if old == 0 {
		return status
	}
	if status.isNegative() {
		return scaled(status.neg(), new, old).neg()
	}
	// In two parts, because the product may overflow: the multiples of old, and the remainder.
	quotientHi, rest := uint64(status.hi)/old, uint64(status.hi)%old
	quotientLo, rest := bits.Div64(rest, status.lo, old)
	overHi, hi := bits.Mul64(quotientHi, new)
	carryHi, lo := bits.Mul64(quotientLo, new)
	hi, carry := bits.Add64(hi, carryHi, 0)
	if overHi+carry != 0 || hi >= uint64(limit.hi) {
		return limit
	}
	partHi, partLo := bits.Mul64(rest, new)
	part, _ := bits.Div64(partHi, partLo, old)
	sum := int128{int64(hi), lo}.add(fromUint64(part))
	if limit.sub(sum).isNegative() {
		return limit
	}
	return sum
}
