package leaseway

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Balanced balances load across backends, each with a lease of its own.
//
// Each operation is assigned to a backend, in proportion to the leases, and then waits at the limiter of that backend.
// So no lease is exceeded, and every lease is used under load.
type Balanced struct {
	balancer *Balancer[*Rate]
	// done is closed by Close.
	done chan struct{}

	mu sync.Mutex
	// gone has, for each backend with a capacity, a channel that is closed when the backend loses it.
	gone     []chan struct{}
	isClosed bool
}

// NewBalanced balances across these backends, whose order breaks ties. It owns the rates: they stay open until
// [Balanced.Close] closes them.
//
// The wants of every rate must be set by [WithWants]: a backend without a lease gets no operations, so its wants would be
// estimated as 0 forever.
func NewBalanced(backends []*Rate, options ...BalancerOption) (*Balanced, error) {
	for _, rate := range backends {
		if rate.opened.estimatesWants() {
			return nil, badOption("wants", "they are not set for %q: a backend without a lease gets no operations, so they cannot "+
				"be estimated", rate.Name())
		}
	}
	b := &Balanced{
		balancer: NewLeasedBalancer(backends, options...),
		done:     make(chan struct{}),
		gone:     make([]chan struct{}, len(backends)),
	}
	for index, rate := range backends {
		usable, changed, _ := rate.opened.current()
		b.setCapacity(index, usable.Capacity)
		go b.follow(index, rate, changed)
	}
	return b, nil
}

// follow forwards the capacity of a backend until the resource or b is closed. changed is its next change.
func (b *Balanced) follow(index int, rate *Rate, changed <-chan struct{}) {
	for {
		select {
		case <-changed:
		case <-b.done:
			return
		}
		usable, next, isClosed := rate.opened.current()
		b.setCapacity(index, usable.Capacity)
		if isClosed {
			return
		}
		changed = next
	}
}

func (b *Balanced) setCapacity(index int, capacity float64) {
	if capacity > 0 {
		b.mu.Lock()
		if b.gone[index] == nil && !b.isClosed {
			b.gone[index] = make(chan struct{})
		}
		b.mu.Unlock()
	}
	b.balancer.SetCapacity(index, capacity)
	if !(capacity > 0) {
		// Afterwards, so that callers who leave the backend do not pick it again.
		b.mu.Lock()
		b.endWaits(index)
		b.mu.Unlock()
	}
}

// endWaits sends the callers that wait at a backend away. The lock must be held.
func (b *Balanced) endWaits(index int) {
	if gone := b.gone[index]; gone != nil {
		close(gone)
		b.gone[index] = nil
	}
}

// Wait picks a backend and waits for a permit there. If the backend loses its lease meanwhile, it picks another one. A
// wait whose context ends has taken nothing, but the backend remains charged for the pick. The error is [ErrClosed] if a
// backend was closed.
func (b *Balanced) Wait(ctx context.Context) (Pick[*Rate], error) {
	for {
		pick, ok := b.balancer.Pick()
		if !ok {
			// Pick again, so that no change before this one is missed.
			changed := b.balancer.inner.Changed()
			if pick, ok = b.balancer.Pick(); !ok {
				if err := b.waitForBackend(ctx, changed); err != nil {
					return Pick[*Rate]{}, err
				}
				continue
			}
		}
		if admitted, err := b.admitted(ctx, pick); admitted {
			return pick, nil
		} else if err != nil {
			return Pick[*Rate]{}, err
		}
	}
}

// admitted waits for a permit at the picked backend. It returns false if the backend loses its lease meanwhile.
func (b *Balanced) admitted(ctx context.Context, pick Pick[*Rate]) (bool, error) {
	b.mu.Lock()
	gone, isClosed := b.gone[pick.index], b.isClosed
	b.mu.Unlock()
	switch {
	case isClosed:
		return false, ErrClosed
	case gone == nil:
		return false, ctx.Err()
	}
	return pick.Backend().limiter.WaitUnless(ctx, gone)
}

// waitForBackend waits until a backend may be enabled.
func (b *Balanced) waitForBackend(ctx context.Context, changed <-chan struct{}) error {
	if slices.ContainsFunc(b.balancer.backends, func(rate *Rate) bool { return rate.opened.closed() }) {
		return ErrClosed
	}
	at, ok := b.balancer.NextRetry()
	for index := range b.balancer.backends {
		if b.balancer.IsEnabled(index) {
			// A back-off may have ended since the pick. There is no time left to wait for it.
			return nil
		}
	}
	var retry <-chan time.Time
	if ok {
		timer := time.NewTimer(time.Until(at))
		defer timer.Stop()
		retry = timer.C
	}
	select {
	case <-changed:
		return nil
	case <-retry:
		return nil
	case <-b.done:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Failed skips a backend for a while after a failure, as [Pick.Failed] does.
func (b *Balanced) Failed(index int) { b.balancer.Failed(index) }

// Balancer returns the underlying balancer, for sticky sessions and draining. Its picks have no permit yet, and its shares
// follow the leases.
func (b *Balanced) Balancer() *Balancer[*Rate] { return b.balancer }

// Close closes the rates. Callers that wait get [ErrClosed]. Close is idempotent.
func (b *Balanced) Close() {
	b.mu.Lock()
	wasClosed := b.isClosed
	b.isClosed = true
	for index := range b.gone {
		b.endWaits(index)
	}
	b.mu.Unlock()
	if wasClosed {
		return
	}
	close(b.done)
	for _, rate := range b.balancer.backends {
		rate.Close()
	}
}
