package session

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// cachedMin is a cached minimum of many times. It is recomputed only after the current minimum was removed, because a
// session may have a hundred thousand resources. The cached value is exact or absent.
type cachedMin struct {
	first time.Duration
	known bool
}

// insert reports that a value was added.
func (c *cachedMin) insert(at time.Duration) { c.first = min(c.first, at) }

// remove reports that a value was removed.
func (c *cachedMin) remove(at time.Duration) { c.known = c.known && c.first < at }

// get returns the minimum. If it is not cached, find computes it; find returns Never if there are no values.
func (c *cachedMin) get(find func() time.Duration) time.Duration {
	if !c.known {
		c.first, c.known = find(), true
	}
	return c.first
}

// isAfter returns whether it is known, without recomputing it, that the minimum is after at.
func (c *cachedMin) isAfter(at time.Duration) bool { return c.known && c.first > at }

// Wake returns when Poll or Changes has to be called at the latest; Never if that depends on other events.
func (s *Session) Wake(now time.Duration) time.Duration {
	send := Never
	switch {
	case s.inFlight != nil:
		send = s.inFlight.deadline
	case len(s.leaving) > 0:
		send = s.pauseUntil
	case len(s.entries) > 0:
		send = max(s.firstDueTime(), s.pauseUntil)
	}
	if !s.firstEnd.isAfter(now) {
		s.firstEnd.known = false
	}
	end := s.firstEnd.get(func() time.Duration {
		first := Never
		for _, entry := range s.entries {
			if lease := entry.liveLease(now); lease != nil {
				first = min(first, lease.End)
			}
		}
		return first
	})
	return min(send, end)
}

// longestRetry returns the maximum time between two attempts.
func (s *Session) longestRetry() time.Duration {
	refresh := Never
	for _, entry := range s.entries {
		if entry.lease != nil {
			refresh = min(refresh, entry.lease.Refresh)
		}
	}
	if refresh == Never {
		refresh = defaultRefresh
	}
	return s.pace.longestRetry(refresh, len(s.route.endpoints))
}

func (s *Session) firstDueTime() time.Duration {
	return s.firstDue.get(func() time.Duration {
		first := Never
		for _, entry := range s.entries {
			first = min(first, entry.due)
		}
		return first
	})
}

func (s *Session) schedule(entry *resource, at time.Duration) {
	entry.schedule(at)
	s.firstDue.insert(entry.due)
}

// IsDue returns whether a request would be sent now, so that demands should be updated.
func (s *Session) IsDue(now time.Duration) bool {
	return s.inFlight == nil && s.pauseUntil <= now && (len(s.leaving) > 0 || s.firstDueTime() <= now)
}

// DueResources returns the resources that a request sent now would ask for, in ascending order.
func (s *Session) DueResources(now time.Duration) []string {
	if s.firstDueTime() > now {
		return nil
	}
	if s.usesStream(now) {
		var ids []string
		for id, entry := range s.entries {
			if entry.joins(now) {
				ids = append(ids, id)
			}
		}
		slices.Sort(ids)
		return ids
	}
	until := after(now, s.pace.Ahead)
	return s.earliest(func(entry *resource) bool { return entry.due <= until && entry.notBefore <= now })
}

// earliest returns the chosen resources in ascending order: at most as many as fit into a request, those first that are
// due first.
func (s *Session) earliest(isChosen func(*resource) bool) []string {
	type dueResource struct {
		due time.Duration
		id  string
	}
	var order []dueResource
	for id, entry := range s.entries {
		if isChosen(entry) {
			order = append(order, dueResource{entry.due, id})
		}
	}
	if len(order) > s.resourcesPerRequest {
		// Those that have waited longest go first.
		slices.SortFunc(order, func(a, b dueResource) int {
			return cmp.Or(cmp.Compare(a.due, b.due), strings.Compare(a.id, b.id))
		})
		order = order[:s.resourcesPerRequest]
	}
	ids := make([]string, len(order))
	for i := range order {
		ids[i] = order[i].id
	}
	slices.Sort(ids)
	return ids
}

// retryNow makes all resources of a request due at once.
func (s *Session) retryNow(flight *inFlight, now time.Duration) {
	for _, id := range flight.ids {
		if entry := s.entries[id]; entry != nil {
			s.schedule(entry, now)
		}
	}
}

// after adds a span to a time without overflow.
func after(at, span time.Duration) time.Duration {
	if span > Never-at {
		return Never
	}
	return at + span
}

// since returns the time from start to end, or 0 if end is earlier.
func since(end, start time.Duration) time.Duration { return max(end-start, 0) }
