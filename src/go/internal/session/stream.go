package session

import (
	"slices"
	"time"
)

// A client that holds very many leases renews them by a stream: it states what has changed, and renews all others with one
// message.
//
// Each resource gets an index on the stream with the message that states it first. It is renewable while the client has
// the lease of the last answer and its demand is the one that was stated last; a later message names its index only. A
// resource is stated again if its demand has changed, if its lease was cut, if it was left out of an answer, or if its last
// answer did not count, as one that came after the end of the lease that the message named. So a renewal always stands for
// a request that names the newest lease, with nothing in use beyond it.
//
// Messages are requests like others: one is in flight at a time. If its answer does not come, the stream is given up, and
// everything is stated on another, or by GetCapacity if the server or a proxy does not pass streams.

const (
	// firstPause is how long no stream is opened after one could not be. It doubles while that goes on, up to maxPause.
	firstPause = 10 * time.Second
	maxPause   = 600 * time.Second

	// joinsPart: resources join a message of others if they are due within this part of their refresh interval. Jitter
	// spreads refreshes over a tenth of it.
	joinsPart = 5

	// maxRenewed is the maximum number of renewals in one message. If all of them needed a new lease, the server would
	// still answer in time, with a message of less than four megabytes.
	maxRenewed = 20_000

	// maxGone: a stream with more indexes of resources that are gone is replaced by another.
	maxGone = 1_000

	// maxOffers is the maximum number of servers that accept streams. The peers of a node are fewer.
	maxOffers = 64
)

// StreamRequest is a message on a stream of renewals.
type StreamRequest struct {
	// Stream identifies the stream within its session.
	Stream uint64
	// Sequence is the number of the message. The first of a stream has number 1.
	Sequence uint64
	// Stated has new and changed resources, and Indexes the index of each.
	Stated  []Ask
	Indexes []uint32
	// Renewed has the indexes of the resources to renew.
	Renewed []IndexRange
}

// IndexRange is a range of indexes on a stream.
type IndexRange struct{ First, Count uint32 }

// StreamReply is the answer to a StreamRequest.
type StreamReply struct {
	// Unix is the time of the answer in seconds since the epoch, from which renewed leases count on the wire.
	Unix int64
	// Granted has new leases.
	Granted []StreamGrant
	// LeftOut has the indexes of resources that keep their leases.
	LeftOut []uint32
	// Restart says that the server does not know this stream: everything has to be stated on another.
	Restart bool
}

// StreamGrant is a lease by index. StreamAnswered fills its ID in.
type StreamGrant struct {
	Index uint32
	Lease GrantedLease
}

// place is the place of a resource on a stream.
type place struct {
	// stream is 0 if it was not stated on a stream.
	stream uint64
	index  uint32
	// isKnown is set if the last answer for it was taken, and did not cut its lease.
	isKnown bool
}

// renewalStream is the state of streams of renewals.
type renewalStream struct {
	// offers has the servers that accept streams, each with the minimum number of resources to use one.
	offers map[string]int
	open   *openStream
	// last is the number of the last stream.
	last uint64
	// pausedUntil: no stream is opened before. pause is the last pause, or 0.
	pausedUntil time.Duration
	pause       time.Duration
}

type openStream struct {
	number uint64
	target string
	// next is the number of the next message.
	next uint64
	// ids has the resources, by index.
	ids []string
}

// id returns the resource with an index of an answer. It returns false if none was stated with that index.
func (o *openStream) id(index uint32) (string, bool) {
	// An int may have 32 bits.
	if uint64(index) >= uint64(len(o.ids)) {
		return "", false
	}
	return o.ids[index], true
}

// OfferStream reports whether a server accepts streams of renewals. One is used from a number of resources on; 0 means
// that it does not.
func (s *Session) OfferStream(server string, resources int) {
	offers := s.stream.offers
	if resources == 0 {
		delete(offers, server)
		return
	}
	if _, known := offers[server]; known || len(offers) < maxOffers {
		offers[server] = resources
	}
}

// Stream returns the number of the stream on which leases are renewed at present, or 0.
func (s *Session) Stream() uint64 {
	if s.stream.open == nil {
		return 0
	}
	return s.stream.open.number
}

// usesStream returns whether to ask on a stream.
func (s *Session) usesStream(now time.Duration) bool {
	least, isOffered := s.stream.offers[s.route.target]
	return isOffered && len(s.entries) >= least && (s.stream.open != nil || s.stream.pausedUntil <= now)
}

// streamRequest returns the next message, which is request number, or nil. flight gets what it concerns.
func (s *Session) streamRequest(now time.Duration, number uint64, flight *inFlight) *StreamRequest {
	if s.firstDueTime() > now {
		return nil
	}
	open := s.stream.open
	if open == nil || open.target != s.route.target || len(open.ids) > 2*len(s.entries)+maxGone {
		s.stream.last++
		open = &openStream{number: s.stream.last, target: s.route.target, next: 1}
		s.stream.open = open
	}
	request := &StreamRequest{Stream: open.number, Sequence: open.next}
	request.Renewed = s.renewDue(open, now, number, flight)
	for _, id := range s.toState(open, now) {
		entry := s.entries[id]
		index := entry.place.index
		if entry.place.stream != open.number {
			index = uint32(len(open.ids))
			open.ids = append(open.ids, id)
		}
		entry.place = place{stream: open.number, index: index}
		request.Stated = append(request.Stated, s.ask(id, now))
		request.Indexes = append(request.Indexes, index)
		flight.ids = append(flight.ids, id)
	}
	if len(request.Stated) == 0 && len(request.Renewed) == 0 {
		return nil
	}
	return request
}

// renewDue makes the renewable resources that are due part of a request. It returns their indexes.
func (s *Session) renewDue(open *openStream, now time.Duration, number uint64, flight *inFlight) []IndexRange {
	var indexes []uint32
	for _, entry := range s.entries {
		if len(indexes) == maxRenewed {
			break
		}
		if !entry.joins(now) || !entry.isRenewable(open.number, now) {
			continue
		}
		indexes = append(indexes, entry.place.index)
		entry.namedUntil = entry.lease.End
		entry.renewedBy = number
		s.firstDue.remove(entry.due)
		entry.due = notBeforeAnswer
	}
	slices.Sort(indexes)
	var renewed []IndexRange
	for _, index := range indexes {
		flight.renewed = append(flight.renewed, open.ids[index])
		if last := len(renewed) - 1; last >= 0 && renewed[last].First+renewed[last].Count == index {
			renewed[last].Count++
			continue
		}
		renewed = append(renewed, IndexRange{index, 1})
	}
	return renewed
}

// toState returns the resources to state: those that are due and not renewable. They are at most as many as in a request,
// those first that are due first.
func (s *Session) toState(open *openStream, now time.Duration) []string {
	return s.earliest(func(entry *resource) bool {
		return entry.joins(now) && !entry.isRenewable(open.number, now)
	})
}

// StreamAnswered reports the answer of the master to a request that was a message on a stream. It returns whether the
// answer still counts.
func (s *Session) StreamAnswered(now time.Duration, number uint64, reply *StreamReply) bool {
	flight := s.takeInFlight(number)
	if flight == nil || !flight.isStream {
		return false
	}
	s.route.succeeded()
	open := s.stream.open
	if open == nil {
		return false
	}
	if reply.Restart {
		if open.next == 1 {
			// A server that does not even accept the first message would be asked again and again.
			s.pauseStreams(now, firstPause)
		}
		s.retryStream(flight, now)
		return true
	}
	s.failures = 0
	s.stream.pause = 0
	open.next++
	for i := range reply.Granted {
		grant := &reply.Granted[i]
		id, isStated := open.id(grant.Index)
		if !isStated || !s.isAsked(flight, id) {
			continue
		}
		grant.Lease.ID = id
		before := s.Lease(now, grant.Lease.ID)
		// After a cut, more may be in use than the lease allows. A renewal cannot say so.
		isCut := before != nil && granted(grant.Lease.Wire.Capacity) < before.Capacity
		isTaken := s.storeLease(now, flight.sent, &grant.Lease) && grant.Lease.Token != 0
		s.noteAnswer(grant.Lease.ID, isTaken && !isCut)
	}
	for _, index := range reply.LeftOut {
		if id, isStated := open.id(index); isStated {
			s.noteAnswer(id, false)
			s.keepLease(now, id)
		}
	}
	for _, id := range flight.ids {
		s.keepLease(now, id)
	}
	s.extendLeases(now, flight, reply.Unix)
	return true
}

// isAsked returns whether a message states or renews a resource. Other leases in its answer are ignored.
func (s *Session) isAsked(flight *inFlight, id string) bool {
	entry := s.entries[id]
	if entry == nil {
		entry = s.leaving[id]
	}
	return flight.concerns(id) || entry != nil && entry.renewedBy == flight.number
}

func (s *Session) noteAnswer(id string, isKnown bool) {
	if entry := s.entries[id]; entry != nil {
		entry.renewedBy = 0
		entry.place.isKnown = isKnown
	}
}

// extendLeases extends the leases that the answer to a message does not list.
func (s *Session) extendLeases(now time.Duration, flight *inFlight, unix int64) {
	soon := s.earliestRequest(now)
	for _, id := range flight.renewed {
		entry := s.entries[id]
		if entry == nil || entry.renewedBy != flight.number {
			continue
		}
		entry.renewedBy = 0
		if entry.namedUntil <= now {
			// See storeLease.
			entry.place.isKnown = false
			s.schedule(entry, soon)
			continue
		}
		s.firstEnd.remove(entry.lease.End)
		// A new value, because others refer to the one before.
		lease := *entry.lease
		lease.End = after(flight.sent, entry.length)
		lease.Wire.ExpiryTime = unix + int64(entry.length/time.Second)
		entry.lease = &lease
		s.firstEnd.insert(lease.End)
		// Its expiry has changed.
		s.unreported[id] = struct{}{}
		entry.failed = false
		s.schedule(entry, after(now, s.pace.refresh(lease.Refresh, since(lease.End, now), s.rng)))
	}
}

// retryStream makes all resources of a message due at once, and gives up the stream.
func (s *Session) retryStream(flight *inFlight, now time.Duration) {
	s.stream.open = nil
	s.retryNow(flight, now)
	s.eachRenewed(flight, func(entry *resource) { s.schedule(entry, now) })
}

// streamFailed handles the failure of a request: the stream is given up. If it was the first message, no other stream is
// opened for a while.
func (s *Session) streamFailed(now time.Duration, flight *inFlight) {
	if open := s.stream.open; open != nil && open.next == 1 {
		s.pauseStreams(now, firstPause)
	}
	s.stream.open = nil
	s.eachRenewed(flight, func(entry *resource) {
		entry.failed = true
		s.schedule(entry, now)
	})
}

func (s *Session) eachRenewed(flight *inFlight, change func(*resource)) {
	for _, id := range flight.renewed {
		if entry := s.entries[id]; entry != nil && entry.renewedBy == flight.number {
			entry.renewedBy = 0
			change(entry)
		}
	}
}

// StreamRefused reports that the server, or a proxy before it, does not know streams. The request is sent again by
// GetCapacity, at once. StreamRefused returns whether the failure still counts.
func (s *Session) StreamRefused(now time.Duration, number uint64) bool {
	flight := s.takeInFlight(number)
	if flight == nil {
		return false
	}
	s.retryStream(flight, now)
	s.pauseStreams(now, maxPause)
	return true
}

func (s *Session) pauseStreams(now, least time.Duration) {
	s.stream.pause = min(max(2*s.stream.pause, least), maxPause)
	s.stream.pausedUntil = after(now, s.stream.pause)
}

// keepLease schedules the refresh of a resource that was left out of an answer: too soon, or refused. Its lease stays
// unchanged.
func (s *Session) keepLease(now time.Duration, id string) {
	entry := s.entries[id]
	if entry == nil || entry.due != notBeforeAnswer {
		return
	}
	wait := max(s.pace.RefreshMin, minRequestGap)
	if entry.lease != nil {
		wait = s.pace.refresh(entry.lease.Refresh, since(entry.lease.End, now), s.rng)
	}
	s.schedule(entry, after(now, wait))
}

// joins returns whether a resource is due, or soon enough to join a message of others. In a steady state all resources
// are, once per refresh interval. If one is due early, as after a cut or a hint, it does not renew all others.
func (r *resource) joins(now time.Duration) bool {
	ahead := time.Duration(0)
	if r.lease != nil {
		ahead = r.lease.Refresh / joinsPart
	}
	return r.due != notBeforeAnswer && r.due <= after(now, ahead) && r.notBefore <= now
}

// isRenewable returns whether the index of a resource on a stream stands for a request that names its lease and its
// demand.
func (r *resource) isRenewable(stream uint64, now time.Duration) bool {
	return r.place.stream == stream && r.place.isKnown && r.liveLease(now) != nil && r.asked != nil && r.demand.isSame(r.asked)
}
