package limiter

import (
	"math"
	"math/big"
	"math/bits"
)

// uint128 is an unsigned integer. Sums and products saturate.
type uint128 struct{ hi, lo uint64 }

var maxUint128 = uint128{math.MaxUint64, math.MaxUint64}

func (a uint128) isZero() bool { return a.hi|a.lo == 0 }

func (a uint128) less(b uint128) bool { return a.hi < b.hi || a.hi == b.hi && a.lo < b.lo }

func (a uint128) add(b uint128) uint128 {
	lo, carry := bits.Add64(a.lo, b.lo, 0)
	hi, carry := bits.Add64(a.hi, b.hi, carry)
	if carry != 0 {
		return maxUint128
	}
	return uint128{hi, lo}
}

// sub returns a - b, or 0 if b is larger.
func (a uint128) sub(b uint128) uint128 {
	lo, borrow := bits.Sub64(a.lo, b.lo, 0)
	hi, borrow := bits.Sub64(a.hi, b.hi, borrow)
	if borrow != 0 {
		return uint128{}
	}
	return uint128{hi, lo}
}

func (a uint128) mul(n uint64) uint128 {
	carry, lo := bits.Mul64(a.lo, n)
	over, hi := bits.Mul64(a.hi, n)
	hi, plus := bits.Add64(hi, carry, 0)
	if over|plus != 0 {
		return maxUint128
	}
	return uint128{hi, lo}
}

// div returns floor(a / b), or the maximum if that does not fit. b must not be 0.
func (a uint128) div(b uint128) uint64 {
	switch {
	case b.hi == 0 && a.hi < b.lo:
		quotient, _ := bits.Div64(a.hi, a.lo, b.lo)
		return quotient
	case b.hi == 0:
		return math.MaxUint64
	}
	// The quotient is less than 2^64.
	return new(big.Int).Div(a.big(), b.big()).Uint64()
}

// divUp returns ceil(a / b), or the maximum if that does not fit. b must not be 0.
func (a uint128) divUp(b uint128) uint64 {
	quotient := a.div(b)
	if quotient == math.MaxUint64 || b.mul(quotient) == a {
		return quotient
	}
	return quotient + 1
}

func (a uint128) shiftLeft(n uint) uint128 {
	return uint128{a.hi<<n | a.lo>>(64-n), a.lo << n}
}

func (a uint128) shiftRight(n uint) uint128 {
	return uint128{a.hi >> n, a.lo>>n | a.hi<<(64-n)}
}

func (a uint128) float() float64 { return float64(a.hi)*0x1p64 + float64(a.lo) }

func (a uint128) big() *big.Int {
	wide := new(big.Int).SetUint64(a.hi)
	return wide.Lsh(wide, 64).Or(wide, new(big.Int).SetUint64(a.lo))
}

// fromFloat truncates a number from 0 to 2^128.
func fromFloat(f float64) uint128 {
	if f < 0x1p64 {
		return uint128{0, uint64(f)}
	}
	hi := uint64(f / 0x1p64)
	// Exact, because a float64 has 53 significant bits.
	return uint128{hi, uint64(f - float64(hi)*0x1p64)}
}

func min128(a, b uint128) uint128 {
	if b.less(a) {
		return b
	}
	return a
}

func max128(a, b uint128) uint128 {
	if a.less(b) {
		return b
	}
	return a
}
