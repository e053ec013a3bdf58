package session

import "time"

// resource is the state of one resource.
type resource struct {
	demand Wants
	mode   Mode
	// asked is the demand in the last request.
	asked *Wants
	lease *Lease
	// length is the length of the lease, counted from when its request was sent.
	length time.Duration
	// place is its place on a stream of renewals, and renewedBy is the request in flight that renews the lease by its index
	// there; 0 if there is none.
	place     place
	renewedBy uint64
	// namedUntil is the expiry of the lease that the last request named, or Never if it named none.
	namedUntil time.Duration
	safe       float64
	hasSafe    bool
	// failed is set if a request has failed since the last lease was received.
	failed bool
	due    time.Duration
	// notBefore is the earliest time of the next request, even together with others.
	notBefore time.Duration
	// givenBack is set once a release was sent: the lease must not be used any more, even if the release is lost.
	givenBack bool
	// reported is the last value given to Session.Changes.
	reported *Usable
}

func newResource(demand Wants, mode Mode, now time.Duration) *resource {
	return &resource{demand: demand, mode: mode, due: now, namedUntil: Never}
}

func (r *resource) schedule(at time.Duration) { r.due = min(r.due, max(at, r.notBefore)) }

func (r *resource) liveLease(now time.Duration) *Lease {
	if r.lease != nil && r.lease.IsLive(now) {
		return r.lease
	}
	return nil
}

func (r *resource) usable(now time.Duration) Usable {
	if lease := r.liveLease(now); lease != nil {
		return Usable{Capacity: lease.Capacity, Basis: Leased, Until: lease.End, Then: r.fallback()}
	}
	if r.lease == nil && !r.failed {
		return Usable{Basis: Unknown, Until: Never}
	}
	return Usable{Capacity: r.fallback(), Basis: Fallback, Until: Never}
}

func (r *resource) fallback() float64 {
	switch {
	case r.mode == Safe && r.hasSafe:
		return safe(r.safe)
	case r.mode == Optimistic:
		return granted(r.demand.Amount)
	}
	return 0
}
