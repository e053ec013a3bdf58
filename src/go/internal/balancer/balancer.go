package balancer

import (
	"container/heap"
	"math"
	"sync"
	"time"
)

// Balancer picks backends by their index.
//
// A backend is enabled while it has a share, is not paused, and is not in back-off after a failure. A disabled backend
// accrues nothing, and continues where it was when it is enabled again.
type Balancer struct {
	retry time.Duration
	now   func() time.Time

	mu       sync.Mutex
	schedule *Schedule
	backends []backend
	// retries has the ends of all back-offs.
	retries retries
	// changed is closed after a change of a share or of a pause. It is nil if nobody waits for one.
	changed chan struct{}
}

type backend struct {
	member    Member
	isPaused  bool
	hasFailed bool
}

// New returns a balancer. A backend that fails is disabled for the duration retry. New panics if there are more than
// MaxMembers weights.
func New(weights []uint32, retry time.Duration, now func() time.Time) *Balancer {
	b := &Balancer{retry: retry, now: now, schedule: NewSchedule(), backends: make([]backend, len(weights))}
	for index, weight := range weights {
		b.backends[index].member = b.schedule.Add(uint64(weight), 0)
		b.settle(index)
	}
	return b
}

// Pick picks the next backend. It returns false if no backend is enabled.
func (b *Balancer) Pick() (index int, ok bool) {
	b.lock()
	defer b.mu.Unlock()
	member, ok := b.schedule.Pick()
	return member.Index(), ok
}

// PickWhere picks the next backend among those that are usable now. See [Schedule.PickWhere].
func (b *Balancer) PickWhere(usable func(index int) bool) (index int, ok bool) {
	b.lock()
	defer b.mu.Unlock()
	member, ok := b.schedule.PickWhere(func(member Member) bool { return usable(member.Index()) })
	return member.Index(), ok
}

// PickSticky charges a certain backend as if it were next. It returns false, and charges nothing, if the backend is not
// enabled.
func (b *Balancer) PickSticky(index int) bool {
	b.lock()
	defer b.mu.Unlock()
	return b.schedule.Force(b.backends[index].member)
}

// SetCapacity sets the share of a backend to a capacity in milli-units, rounded down.
func (b *Balancer) SetCapacity(index int, capacity float64) {
	b.change(index, func(backend *backend) { b.schedule.Rescale(backend.member, milliUnits(capacity)) })
}

// SetWeight sets the share of a backend. The schedule starts anew.
func (b *Balancer) SetWeight(index int, weight uint32) {
	b.change(index, func(backend *backend) {
		b.schedule.SetFactor(backend.member, uint64(weight))
		b.schedule.Reset()
	})
}

// SetPaused pauses or resumes a backend.
func (b *Balancer) SetPaused(index int, isPaused bool) {
	b.change(index, func(backend *backend) { backend.isPaused = isPaused })
}

// Failed disables a backend for the back-off. Failures during the back-off do not prolong it.
func (b *Balancer) Failed(index int) {
	at := b.now().Add(b.retry)
	b.lock()
	defer b.mu.Unlock()
	if backend := &b.backends[index]; !backend.hasFailed {
		backend.hasFailed = true
		b.settle(index)
		heap.Push(&b.retries, retry{at, index})
	}
}

// NextRetry returns when the next back-off ends. It returns false if there is none.
func (b *Balancer) NextRetry() (time.Time, bool) {
	b.lock()
	defer b.mu.Unlock()
	if len(b.retries) == 0 {
		return time.Time{}, false
	}
	return b.retries[0].at, true
}

// IsEnabled returns whether a backend is enabled.
func (b *Balancer) IsEnabled(index int) bool {
	b.lock()
	defer b.mu.Unlock()
	return b.schedule.IsEnabled(b.backends[index].member)
}

// Changed returns a channel that is closed after the next change of a share or of a pause.
func (b *Balancer) Changed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.changed == nil {
		b.changed = make(chan struct{})
	}
	return b.changed
}

// lock takes the lock and ends back-offs that are over. It reads the clock only if there are any.
func (b *Balancer) lock() {
	b.mu.Lock()
	if len(b.retries) == 0 {
		return
	}
	for now := b.now(); len(b.retries) > 0 && !b.retries[0].at.After(now); {
		index := heap.Pop(&b.retries).(retry).index
		b.backends[index].hasFailed = false
		b.settle(index)
	}
}

// change changes a backend, and enables or disables it accordingly.
func (b *Balancer) change(index int, change func(*backend)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.backends[index])
	b.settle(index)
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
}

// settle enables a backend if it has a share and is neither paused nor in back-off.
func (b *Balancer) settle(index int) {
	backend := &b.backends[index]
	if b.schedule.Factor(backend.member) > 0 && !backend.isPaused && !backend.hasFailed {
		b.schedule.Enable(backend.member)
	} else {
		b.schedule.Disable(backend.member)
	}
}

// milliUnits returns the factor of a capacity. Capacities beyond the maximum, and unlimited ones, have the largest factor.
func milliUnits(capacity float64) uint64 {
	switch milli := math.Floor(capacity * 1000); {
	case milli >= MaxFactor:
		return MaxFactor
	case milli > 0:
		return uint64(milli)
	}
	// Also for NaN.
	return 0
}

// retry is the end of a back-off.
type retry struct {
	at    time.Time
	index int
}

// retries is a heap.
type retries []retry

func (r retries) Len() int           { return len(r) }
func (r retries) Less(i, j int) bool { return r[i].at.Before(r[j].at) }
func (r retries) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }
func (r *retries) Push(x any)        { *r = append(*r, x.(retry)) }
func (r *retries) Pop() any {
	last := len(*r) - 1
	popped := (*r)[last]
	*r = (*r)[:last]
	return popped
}
