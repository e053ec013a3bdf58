package leaseway

import (
	"context"
	"sync"

	"github.com/leaseway/leaseway/src/go/internal/limiter"
)

// Gauge is a handle of a gauge: a resource with a number of permits in use at the same time, such as connections,
// transactions or jobs.
//
// At most as many whole permits are in use as the capacity allows. When the capacity is cut, permits in use stay valid:
// no new ones are granted until enough were released, and meanwhile the client reports what is still in use, so that the
// server gives it to nobody else.
type Gauge struct {
	Resource
	limiter *limiter.Gauge
}

// Acquire waits for a permit. The permit is in use until release is called. release is idempotent, and may be called by
// any goroutine.
func (g *Gauge) Acquire(ctx context.Context) (release func(), err error) { return g.AcquireN(ctx, 1) }

// AcquireN waits for n permits at once. No caller that came later is admitted before: a number above the capacity blocks all
// callers behind it until its context ends or the capacity rises.
func (g *Gauge) AcquireN(ctx context.Context, n int) (release func(), err error) {
	count, err := checkCount(n)
	if err != nil {
		return nil, err
	}
	if err := g.limiter.Acquire(ctx, count); err != nil {
		return nil, err
	}
	release, ok := g.keep(count)
	if !ok {
		return nil, ErrClosed
	}
	return release, nil
}

// TryAcquire takes a permit if one is free now.
func (g *Gauge) TryAcquire() (release func(), ok bool) { return g.TryAcquireN(1) }

// TryAcquireN takes n permits if they are free now, or none.
func (g *Gauge) TryAcquireN(n int) (release func(), ok bool) {
	count, err := checkCount(n)
	if err != nil || !g.limiter.TryAcquire(count) {
		return nil, false
	}
	return g.keep(count)
}

func (g *Gauge) keep(n uint64) (release func(), ok bool) {
	if !g.opened.retain() {
		g.limiter.Release(n)
		return nil, false
	}
	return sync.OnceFunc(func() {
		g.limiter.Release(n)
		g.opened.drop()
	}), true
}

// InUse returns the permits in use.
func (g *Gauge) InUse() int { return toInt(g.limiter.InUse()) }

// EstimateWants estimates the wants from now on, if they were fixed.
func (g *Gauge) EstimateWants() { g.estimateWants() }

// Begin waits for a permit, see [Limiter].
func (g *Gauge) Begin(ctx context.Context) (end func(), err error) { return g.Acquire(ctx) }
