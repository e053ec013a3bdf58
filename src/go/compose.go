package leaseway

import (
	"context"
	"slices"
	"strings"
)

// Limiter is what an operation waits for before it begins: a [Rate], a [Gauge], or several of them, see [All].
type Limiter interface {
	// Begin waits until an operation may begin. The caller calls end when the operation is over. If there is an error,
	// nothing was taken, and end must not be called.
	Begin(ctx context.Context) (end func(), err error)
}

// All returns a limiter whose operations need a permit of each of these limiters. Gauges come first, because their
// permits can be held while others are waited for, and rates last, because their permits should be used at once. Within
// both kinds the order is that of the names, so that two callers never wait for each other. If one of them fails, permits
// that were taken before are returned.
func All(limiters ...Limiter) Limiter {
	ordered := slices.Clone(limiters)
	slices.SortStableFunc(ordered, func(a, b Limiter) int {
		kindA, nameA := rank(a)
		kindB, nameB := rank(b)
		if kindA != kindB {
			return kindA - kindB
		}
		return strings.Compare(nameA, nameB)
	})
	return all(ordered)
}

func rank(limiter Limiter) (kind int, name string) {
	switch limiter := limiter.(type) {
	case *Gauge:
		return 0, limiter.Name()
	case *Rate:
		return 2, limiter.Name()
	}
	return 1, ""
}

type all []Limiter

func (a all) Begin(ctx context.Context) (end func(), err error) {
	var ends, cancels []func()
	for _, limiter := range a {
		rate, isRate := limiter.(*Rate)
		if !isRate {
			end, err := limiter.Begin(ctx)
			if err != nil {
				callAll(cancels)
				return nil, err
			}
			ends, cancels = append(ends, end), append(cancels, end)
			continue
		}
		reservation, err := rate.Reserve(ctx)
		if err != nil {
			callAll(cancels)
			return nil, err
		}
		cancels = append(cancels, reservation.Cancel)
		// The permits count as used from here on, unless a later limiter fails.
		defer func() { _ = reservation.Settle(1) }()
	}
	return func() { callAll(ends) }, nil
}

// callAll calls functions, the last one first.
func callAll(functions []func()) {
	for _, function := range slices.Backward(functions) {
		function()
	}
}
