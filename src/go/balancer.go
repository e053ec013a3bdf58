package leaseway

import (
	"slices"
	"time"

	"github.com/leaseway/leaseway/src/go/internal/balancer"
)

// DefaultRetry is the default back-off of failed backends, as in httpd.
const DefaultRetry = time.Minute

// Balancer picks backends by request counting, as httpd's mod_lbmethod_byrequests does: each gets its share of picks,
// spread out evenly. Shares are fixed weights, or the capacities of leases.
//
// A backend is enabled while it has a share, is not paused, and is not in back-off after a failure. A disabled backend
// accrues nothing, and continues where it was when it is enabled again.
//
// A balancer does not wait and has no limiters: it picks the backend of an operation, and the limiter of that backend
// enforces its lease. [Balanced] does both.
//
// Backends are identified by their index, whose order also breaks ties. Methods panic if the index is out of range. All
// methods may be called by several goroutines at the same time.
type Balancer[B any] struct {
	backends []B
	inner    *balancer.Balancer
}

// Weighted is a backend with a weight. With weight 0 it is never picked.
type Weighted[B any] struct {
	Backend B
	Weight  uint32
}

// BalancerOption configures a [Balancer] or [Balanced].
type BalancerOption interface{ applyToBalancer(*balancerSettings) }

type balancerSettings struct {
	retry time.Duration
	now   func() time.Time
}

type balancerOption func(*balancerSettings)

func (o balancerOption) applyToBalancer(s *balancerSettings) { o(s) }

// WithRetry sets the back-off of failed backends (default [DefaultRetry]), see [Balancer.Failed].
func WithRetry(retry time.Duration) BalancerOption {
	return balancerOption(func(s *balancerSettings) { s.retry = retry })
}

// NewWeightedBalancer returns a balancer with fixed weights. It panics if there are more than 65,536 backends.
func NewWeightedBalancer[B any](backends []Weighted[B], options ...BalancerOption) *Balancer[B] {
	only, weights := make([]B, len(backends)), make([]uint32, len(backends))
	for index, backend := range backends {
		only[index], weights[index] = backend.Backend, backend.Weight
	}
	return newBalancer(only, weights, options)
}

// NewLeasedBalancer returns a balancer with weights from leases. A backend is not picked before
// [Balancer.SetCapacity] sets its lease. It panics if there are more than 65,536 backends.
func NewLeasedBalancer[B any](backends []B, options ...BalancerOption) *Balancer[B] {
	return newBalancer(slices.Clone(backends), make([]uint32, len(backends)), options)
}

func newBalancer[B any](backends []B, weights []uint32, options []BalancerOption) *Balancer[B] {
	s := balancerSettings{retry: DefaultRetry, now: time.Now}
	for _, option := range options {
		option.applyToBalancer(&s)
	}
	return &Balancer[B]{backends, balancer.New(weights, s.retry, s.now)}
}

// Pick picks the next backend. It returns false if no backend is enabled.
func (b *Balancer[B]) Pick() (pick Pick[B], ok bool) {
	index, ok := b.inner.Pick()
	return b.picked(index, ok)
}

// PickWhere picks the next backend among those that are usable now, such as those with a permit left at their limiter.
//
// It calls usable for the next backend only. If that is not usable, it counts as disabled for this pick, and the one
// after it is tried. So PickWhere costs as much as Pick if the first backend is usable, and about two picks more per
// rejected backend. Pause backends that stay unusable, because each pick tries them again.
//
// A lock is held meanwhile: usable has to be fast, and must not call the balancer.
func (b *Balancer[B]) PickWhere(usable func(backend B) bool) (pick Pick[B], ok bool) {
	index, ok := b.inner.PickWhere(func(index int) bool { return usable(b.backends[index]) })
	return b.picked(index, ok)
}

// PickSticky picks a certain backend, for sticky sessions. The backend is charged as if it were next, and the others
// catch up afterwards. It returns false, and charges nothing, if the backend is not enabled.
func (b *Balancer[B]) PickSticky(index int) (pick Pick[B], ok bool) {
	return b.picked(index, b.inner.PickSticky(index))
}

func (b *Balancer[B]) picked(index int, ok bool) (Pick[B], bool) {
	if !ok {
		return Pick[B]{}, false
	}
	return Pick[B]{b, index}, true
}

// SetCapacity sets the capacity of a backend's lease: 0 when it has expired, infinity if there is no limit.
//
// Shares are milli-units of capacity, rounded down; a backend with less than one is disabled. Capacities beyond 1.4e11
// count as that, and so do unlimited ones: unlimited backends share equally, and others beside them are hardly ever
// picked.
//
// What backends have accrued is rescaled, so that no backend starves after leases have become much smaller. It takes
// time linear in the number of backends.
func (b *Balancer[B]) SetCapacity(index int, capacity float64) { b.inner.SetCapacity(index, capacity) }

// SetWeight changes a configured weight. The schedule starts anew.
func (b *Balancer[B]) SetWeight(index int, weight uint32) { b.inner.SetWeight(index, weight) }

// Pause disables a backend until [Balancer.Resume], to drain it, or because it cannot be used.
func (b *Balancer[B]) Pause(index int) { b.inner.SetPaused(index, true) }

// Resume ends a pause.
func (b *Balancer[B]) Resume(index int) { b.inner.SetPaused(index, false) }

// Failed disables a backend for the back-off, because an operation on it failed. Further failures during the back-off do
// not prolong it.
func (b *Balancer[B]) Failed(index int) { b.inner.Failed(index) }

// NextRetry returns when the next back-off ends: how long to wait if no backend is enabled. It returns false if there is
// no back-off.
func (b *Balancer[B]) NextRetry() (time.Time, bool) { return b.inner.NextRetry() }

// IsEnabled returns whether a backend is enabled.
func (b *Balancer[B]) IsEnabled(index int) bool { return b.inner.IsEnabled(index) }

// Backends returns all backends by index.
func (b *Balancer[B]) Backends() []B { return slices.Clone(b.backends) }

// Pick is the backend of an operation, which has been charged for it.
type Pick[B any] struct {
	balancer *Balancer[B]
	index    int
}

// Backend returns the backend.
func (p Pick[B]) Backend() B { return p.balancer.backends[p.index] }

// Index returns the index of the backend, for [Balancer.PickSticky].
func (p Pick[B]) Index() int { return p.index }

// Failed says that the operation failed because of the backend, see [Balancer.Failed].
func (p Pick[B]) Failed() { p.balancer.Failed(p.index) }
