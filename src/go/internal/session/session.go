// Package session is the client side of the lease protocol, as a state machine without clock, I/O and goroutines.
//
// A [Session] keeps the leases of one client with the master of a node. It decides when to send a request and what is in
// it, which answer still counts, and what may be used once a lease has expired. Time is an argument: the duration since
// the client started. Randomness comes from a seed.
//
// [Session.Want] adds a resource. [Session.Poll] returns the next request, if one is due. The owner sends it and reports
// the outcome with [Session.Answered], [Session.Redirected] or [Session.Failed], and then collects what changed with
// [Session.Changes]. [Session.Wake] says when to come back at the latest.
//
// # Rules
//
//   - One request is in flight. Only the answer to the latest request counts, and releases are requests, too. A lease
//     starts when its request was sent, so the client never uses it for longer than the server counts it.
//   - A request names the lease that the client has. If that lease expires before the answer arrives, the answer is
//     dropped and the resource is asked for again at once, because a new master may have given part of that lease to
//     others. An expired lease is named as such until there is a new one.
//   - When the first resource is due, one request asks for all of them.
//   - A lease is confirmed by echoing it with the next request. If a lease shrinks, that request follows after 100 ms,
//     because another client may be waiting for the difference.
//   - Pauses after failures grow until every endpoint is tried once per refresh interval. Redirects are followed at once,
//     up to five in a row.
//   - A release names the newest lease and never overtakes a request in flight. Without a lease to name, nothing is
//     released: an unnamed release that arrives late could free a newer lease. The unanswered grant expires.
package session

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Never is after every other time.
const Never = time.Duration(math.MaxInt64)

// notBeforeAnswer is the due time of a resource whose request is in flight.
const notBeforeAnswer = Never

// shrinkThreshold is the relative loss of capacity that is confirmed early.
const shrinkThreshold = 0.005

// Settings are the settings of a session.
type Settings struct {
	// Endpoints are servers of the node, as HOST:PORT. There must be at least one.
	Endpoints []string
	Pace      Pace
	// ResourcesPerRequest is the maximum number of resources in one request. Others follow in the next request.
	ResourcesPerRequest int
	// Seed is the seed of jitter.
	Seed uint64
}

// Session is the state machine of one client; see the package documentation.
type Session struct {
	pace                Pace
	resourcesPerRequest int
	rng                 *rand.Rand
	route               route
	entries             map[string]*resource
	// unreported has the resources whose usable capacity may differ from what was reported, apart from those whose leases
	// have expired.
	unreported map[string]struct{}
	// firstDue and firstEnd are the earliest due time and the earliest expiry of a live lease.
	firstDue cachedMin
	firstEnd cachedMin
	// leaving has the resources that are no longer wanted and not yet released.
	leaving  map[string]*resource
	inFlight *inFlight
	number   uint64
	failures int
	// releaseFailed is set if the last request was a release and failed: then resources that are due go before the next
	// release.
	releaseFailed bool
	// failedReleases counts the releases that have failed since all resources were released.
	failedReleases int
	// pauseUntil is the end of the back-off.
	pauseUntil time.Duration
	lastSent   time.Duration
	hasSent    bool
	stream     renewalStream
}

type inFlight struct {
	number   uint64
	sent     time.Duration
	deadline time.Duration
	// ids is sorted.
	ids      []string
	releases bool
	// isStream says that it is a message on a stream of renewals. renewed has the resources that it renews.
	isStream bool
	renewed  []string
}

func (f *inFlight) concerns(id string) bool {
	_, found := slices.BinarySearch(f.ids, id)
	return found
}

// New returns a session without resources.
func New(settings Settings) *Session {
	rng := rand.New(rand.NewPCG(settings.Seed, 0))
	return &Session{
		pace:                settings.Pace,
		resourcesPerRequest: max(settings.ResourcesPerRequest, 1),
		rng:                 rng,
		route:               newRoute(settings.Endpoints, rng.Uint64()),
		entries:             map[string]*resource{},
		unreported:          map[string]struct{}{},
		leaving:             map[string]*resource{},
		stream:              renewalStream{offers: map[string]int{}},
	}
}

// Want sets the demand for a resource. A new resource is asked for at once, a known one if its demand has changed
// enough, else with the next refresh. Want returns whether it will be asked for early.
func (s *Session) Want(now time.Duration, id string, demand Wants, mode Mode) bool {
	soon := s.earliestRequest(now)
	s.unreported[id] = struct{}{}
	if returning := s.leaving[id]; returning != nil {
		delete(s.leaving, id)
		returning.due = max(soon, returning.notBefore)
		// It may have been opened anew, by a handle that does not know of the lease yet.
		returning.reported = nil
		// The allowance of a budget belongs to the incarnation that was closed.
		if returning.givenBack || demand.Spent != nil {
			// The server may have processed the release.
			known := returning
			returning = newResource(demand, mode, now)
			returning.safe, returning.hasSafe = known.safe, known.hasSafe
		}
		s.firstDue.insert(returning.due)
		if returning.lease != nil {
			s.firstEnd.insert(returning.lease.End)
		}
		s.entries[id] = returning
	}
	entry := s.entries[id]
	if entry == nil {
		s.firstDue.insert(now)
		s.entries[id] = newResource(demand, mode, now)
		return true
	}
	if lease := entry.lease; lease != nil && demand.incarnation() != entry.demand.incarnation() && !lease.startsOver() {
		// It was closed and opened again at the same moment.
		s.firstEnd.remove(lease.End)
		entry.lease = nil
	}
	urgent := entry.asked == nil || demand.isUrgent(entry.asked)
	if urgent {
		s.schedule(entry, soon)
	}
	entry.demand = demand
	entry.mode = mode
	return urgent
}

// Release drops the demand for a resource. Its lease is released.
func (s *Session) Release(id string) {
	entry := s.entries[id]
	if entry == nil {
		return
	}
	delete(s.entries, id)
	s.firstDue.remove(entry.due)
	if entry.lease != nil {
		s.firstEnd.remove(entry.lease.End)
	}
	if entry.asked != nil {
		s.leaving[id] = entry
	}
}

// ReleaseAll releases all resources. It ends a back-off.
func (s *Session) ReleaseAll() {
	s.failures, s.failedReleases, s.pauseUntil = 0, 0, 0
	for id := range s.entries {
		s.Release(id)
	}
}

// HasFailedToRelease returns whether a release has failed since ReleaseAll.
func (s *Session) HasFailedToRelease() bool { return s.failedReleases > 0 }

// Hint reports a hint of the server: asking for this resource now would change its lease.
func (s *Session) Hint(now time.Duration, id string) {
	if entry := s.entries[id]; entry != nil {
		s.schedule(entry, s.earliestRequest(now))
	}
}

// HintAll reports a hint for all resources.
func (s *Session) HintAll(now time.Duration) {
	soon := s.earliestRequest(now)
	for _, entry := range s.entries {
		s.schedule(entry, soon)
	}
}

// Postpone asks for a resource no earlier than at, not even together with others.
func (s *Session) Postpone(id string, at time.Duration) {
	if entry := s.entries[id]; entry != nil {
		s.firstDue.remove(entry.due)
		entry.due = max(entry.due, at)
		entry.notBefore = at
	}
}

// Poll returns the request to send now, or nil. A request whose deadline has passed is abandoned first.
func (s *Session) Poll(now time.Duration) *Outgoing {
	if late := s.inFlight; late != nil && late.deadline <= now {
		s.inFlight = nil
		s.requestFailed(now, late, s.pace.BackoffMax)
	}
	if s.inFlight != nil || now < s.pauseUntil {
		return nil
	}
	// Releases that always fail must not let all other leases expire.
	asksFirst := s.releaseFailed && s.firstDueTime() <= now
	s.releaseFailed = false
	out := &Outgoing{Target: s.route.target}
	if !asksFirst {
		out.Releases = s.releases(now)
	}
	flight := &inFlight{sent: now, deadline: after(now, s.pace.Deadline), releases: len(out.Releases) > 0}
	switch {
	case flight.releases:
		for _, release := range out.Releases {
			flight.ids = append(flight.ids, release.ID)
		}
	case s.usesStream(now):
		flight.isStream = true
		if out.Stream = s.streamRequest(now, s.number+1, flight); out.Stream == nil {
			return nil
		}
	default:
		// On another stream everything has to be stated again.
		s.stream.open = nil
		out.Asks = s.asks(now)
		if len(out.Asks) == 0 {
			return nil
		}
		for i := range out.Asks {
			flight.ids = append(flight.ids, out.Asks[i].ID)
		}
	}
	s.number++
	out.Number, flight.number = s.number, s.number
	s.inFlight = flight
	s.lastSent, s.hasSent = now, true
	return out
}

// IsIdle returns whether nothing is wanted and everything has been released.
func (s *Session) IsIdle() bool {
	return len(s.entries) == 0 && len(s.leaving) == 0 && s.inFlight == nil
}

// Answered reports the answer of the master to a request. It returns whether the answer still counts.
func (s *Session) Answered(now time.Duration, number uint64, given []GrantedLease) bool {
	flight := s.takeInFlight(number)
	if flight == nil {
		return false
	}
	s.failures = 0
	s.route.succeeded()
	if flight.releases {
		for _, id := range flight.ids {
			delete(s.leaving, id)
		}
		return true
	}
	for i := range given {
		// Leases that this request did not ask for are ignored.
		if flight.concerns(given[i].ID) {
			s.storeLease(now, flight.sent, &given[i])
		}
	}
	for _, id := range flight.ids {
		// Left out of the answer: too soon, or refused.
		s.keepLease(now, id)
	}
	return true
}

// Redirected reports that the server is not the master, and which server is; master is empty if it does not know. It
// returns whether the answer still counts.
func (s *Session) Redirected(now time.Duration, number uint64, master string) bool {
	flight := s.takeInFlight(number)
	if flight == nil {
		return false
	}
	if master != "" && s.route.redirected(master) {
		s.retryStream(flight, now)
		return true
	}
	longest := s.pace.BackoffMax
	if master == "" {
		// A node that is up and has no master will elect one soon.
		longest = s.pace.MasterlessMax
	}
	s.requestFailed(now, flight, longest)
	return true
}

// Failed reports that a request has failed. It returns whether that still counts.
func (s *Session) Failed(now time.Duration, number uint64) bool {
	flight := s.takeInFlight(number)
	if flight == nil {
		return false
	}
	s.requestFailed(now, flight, s.pace.BackoffMax)
	return true
}

// Changes calls report for each resource whose usable capacity, expiry or fallback differs from what was last reported.
func (s *Session) Changes(now time.Duration, report func(id string, usable Usable)) {
	check := func(id string, entry *resource) {
		usable := entry.usable(now)
		if entry.reported == nil || *entry.reported != usable {
			entry.reported = &usable
			report(id, usable)
		}
	}
	unreported := s.unreported
	if len(unreported) > 0 {
		s.unreported = map[string]struct{}{}
	}
	if !s.firstEnd.isAfter(now) {
		for id, entry := range s.entries {
			check(id, entry)
		}
		return
	}
	for id := range unreported {
		if entry := s.entries[id]; entry != nil {
			check(id, entry)
		}
	}
}

// ReportAgain reports this resource again with the next Changes: it has a new handle.
func (s *Session) ReportAgain(id string) {
	if entry := s.entries[id]; entry != nil {
		s.unreported[id] = struct{}{}
		entry.reported = nil
	}
}

// Usable returns what may be used of a resource now, and whether it is wanted.
func (s *Session) Usable(now time.Duration, id string) (Usable, bool) {
	if entry := s.entries[id]; entry != nil {
		return entry.usable(now), true
	}
	return Usable{}, false
}

// Lease returns the live lease of a resource, or nil.
func (s *Session) Lease(now time.Duration, id string) *Lease {
	if entry := s.entries[id]; entry != nil {
		return entry.liveLease(now)
	}
	return nil
}

// Learn learns the peers of the node from its master. They are tried after the configured endpoints, and replace the
// peers learnt before.
func (s *Session) Learn(peers []string) { s.route.learn(peers) }

// Endpoints returns all endpoints that are tried in turn while none answers.
func (s *Session) Endpoints() []string { return slices.Clone(s.route.endpoints) }

// Target returns the endpoint that requests go to at present.
func (s *Session) Target() string { return s.route.target }

// InFlight returns the number of the request in flight, or 0.
func (s *Session) InFlight() uint64 {
	if s.inFlight == nil {
		return 0
	}
	return s.inFlight.number
}

// Failures returns the number of failures since the last answer.
func (s *Session) Failures() int { return s.failures }

// earliestRequest returns now, or a little later if a request has just been sent.
func (s *Session) earliestRequest(now time.Duration) time.Duration {
	if !s.hasSent {
		return now
	}
	return max(now, after(s.lastSent, minRequestGap))
}

// takeInFlight takes the request in flight if it has this number. Answers to earlier requests do not count.
func (s *Session) takeInFlight(number uint64) *inFlight {
	flight := s.inFlight
	if flight == nil || flight.number != number {
		return nil
	}
	s.inFlight = nil
	return flight
}

func (s *Session) requestFailed(now time.Duration, flight *inFlight, longest time.Duration) {
	if s.failures < math.MaxInt32 {
		s.failures++
	}
	s.route.failed()
	longest = min(longest, s.longestRetry())
	s.pauseUntil = after(now, s.pace.backoff(s.failures, longest, since(now, flight.sent), s.rng))
	s.streamFailed(now, flight)
	if flight.releases {
		// Retried until the leases expire.
		s.releaseFailed = true
		s.failedReleases++
		return
	}
	for _, id := range flight.ids {
		if entry := s.entries[id]; entry != nil {
			entry.failed = true
			s.schedule(entry, now)
			s.unreported[id] = struct{}{}
		}
	}
}

// releases returns the leases to release. Those that have expired meanwhile are dropped.
func (s *Session) releases(now time.Duration) []Release {
	if len(s.leaving) == 0 {
		return nil
	}
	var ids []string
	for id, entry := range s.leaving {
		if entry.liveLease(now) == nil {
			delete(s.leaving, id)
			continue
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	ids = ids[:min(len(ids), s.resourcesPerRequest)]
	releases := make([]Release, len(ids))
	for i, id := range ids {
		entry := s.leaving[id]
		entry.givenBack = true
		releases[i] = Release{ID: id, Token: entry.lease.Token, Spent: entry.demand.Spent}
	}
	return releases
}

func (s *Session) asks(now time.Duration) []Ask {
	ids := s.DueResources(now)
	asks := make([]Ask, len(ids))
	for i, id := range ids {
		asks[i] = s.ask(id, now)
	}
	return asks
}

// ask asks for one resource: it is due again with the answer.
func (s *Session) ask(id string, now time.Duration) Ask {
	entry := s.entries[id]
	demand := entry.demand
	entry.asked = &demand
	s.firstDue.remove(entry.due)
	entry.due = notBeforeAnswer
	ask := Ask{ID: id, Demand: demand, Has: entry.liveLease(now)}
	entry.namedUntil = Never
	switch {
	case ask.Has != nil:
		entry.namedUntil = ask.Has.End
	case entry.lease != nil && entry.lease.Token != 0:
		ask.Had = entry.lease
	}
	return ask
}

// storeLease returns whether the lease was taken.
func (s *Session) storeLease(now, sent time.Duration, given *GrantedLease) bool {
	entry := s.entries[given.ID]
	isWanted := entry != nil
	if !isWanted {
		if entry = s.leaving[given.ID]; entry == nil {
			return false
		}
	}
	schedule := func(at time.Duration) {
		entry.schedule(at)
		if isWanted {
			s.firstDue.insert(entry.due)
		}
	}
	if entry.demand.incarnation() != entry.asked.incarnation() {
		// It answers an earlier incarnation of a client of a budget, whose allowance is not that of this one.
		schedule(s.earliestRequest(now))
		return false
	}
	if entry.namedUntil <= now {
		// A new master may have counted the named lease as live although its capacity belongs to another client by now.
		// The next request names the lease as expired, so its answer counts whenever it arrives.
		schedule(s.earliestRequest(now))
		return false
	}
	lease := &Lease{
		Capacity: granted(given.Wire.Capacity),
		End:      after(sent, given.Length),
		Refresh:  given.Refresh,
		Token:    given.Token,
		Wire:     given.Wire,
		Budget:   given.Budget,
	}
	before := 0.0
	if live := entry.liveLease(now); live != nil {
		before = live.Capacity
	}
	// The next value of the random sequence is drawn in any case, so that a seed gives the same times.
	next := after(now, s.pace.refresh(given.Refresh, since(lease.End, now), s.rng))
	if lease.Capacity < before*(1-shrinkThreshold) && given.Token != 0 {
		next = after(now, minRequestGap)
	}
	// If a hint or a change of demand came while the request was in flight, the due time is set already, and the next
	// request follows at once.
	schedule(next)
	if isWanted {
		if entry.lease != nil {
			s.firstEnd.remove(entry.lease.End)
		}
		s.firstEnd.insert(lease.End)
		s.unreported[given.ID] = struct{}{}
	}
	// A new value, because requests in flight refer to the one before.
	entry.lease = lease
	entry.length = given.Length
	if given.HasSafe {
		entry.safe, entry.hasSafe = given.Safe, true
	}
	entry.failed = false
	return true
}
