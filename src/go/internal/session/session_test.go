package session

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

const (
	ms = time.Millisecond
	// end is the expiry of the lease of leased.
	end = 60_000 * ms
)

func newSession(endpoints ...string) *Session {
	return New(Settings{Endpoints: endpoints, Pace: DefaultPace(), ResourcesPerRequest: 1000, Seed: 7})
}

func wants(amount float64) Wants { return Wants{Amount: amount} }

// given is a lease of a minute, with a refresh interval of five seconds and a safe capacity of 1.5.
func given(name string, capacity float64, token uint64) GrantedLease {
	return GrantedLease{
		ID:      name,
		Length:  60_000 * ms,
		Refresh: 5_000 * ms,
		Token:   token,
		Wire:    Wire{ExpiryTime: 60, RefreshInterval: 5, Capacity: capacity},
		Safe:    1.5,
		HasSafe: true,
	}
}

// tester is a session with assertions.
type tester struct {
	*testing.T
	*Session
}

func (t tester) poll(at time.Duration) *Outgoing {
	t.Helper()
	outgoing := t.Poll(at)
	if outgoing == nil {
		t.Fatalf("no request is due at %v", at)
	}
	return outgoing
}

func (t tester) pollsNothing(at time.Duration) {
	t.Helper()
	if outgoing := t.Poll(at); outgoing != nil {
		t.Fatalf("at %v it sends %+v", at, outgoing)
	}
}

func (t tester) answer(at time.Duration, number uint64, leases ...GrantedLease) {
	t.Helper()
	if !t.Answered(at, number, leases) {
		t.Fatalf("the answer to %d does not count", number)
	}
}

func (t tester) capacity(at time.Duration, name string) float64 {
	t.Helper()
	usable, ok := t.Usable(at, name)
	if !ok {
		t.Fatalf("%s is not wanted", name)
	}
	return usable.Capacity
}

func (t tester) hasCapacity(at time.Duration, name string, expected float64) {
	t.Helper()
	if capacity := t.capacity(at, name); capacity != expected {
		t.Fatalf("%s may use %g at %v, not %g", name, capacity, at, expected)
	}
}

func (t tester) wakes(now, expected time.Duration) {
	t.Helper()
	if wake := t.Wake(now); wake != expected {
		t.Fatalf("it wakes at %v, not %v", wake, expected)
	}
}

// names checks the tokens of the live and of the expired lease that a request names; 0 for none.
func (t tester) names(outgoing *Outgoing, has, had uint64) {
	t.Helper()
	token := func(lease *Lease) uint64 {
		if lease == nil {
			return 0
		}
		return lease.Token
	}
	if len(outgoing.Asks) == 0 {
		t.Fatalf("it releases %+v", outgoing.Releases)
	}
	if ask := outgoing.Asks[0]; token(ask.Has) != has || token(ask.Had) != had {
		t.Fatalf("it names %d, %d instead of %d, %d", token(ask.Has), token(ask.Had), has, had)
	}
}

func (t tester) releasesLease(outgoing *Outgoing, expected ...Release) {
	t.Helper()
	if !slices.Equal(outgoing.Releases, expected) {
		t.Fatalf("it releases %+v, not %+v", outgoing.Releases, expected)
	}
}

func (t tester) token(at time.Duration) uint64 {
	if lease := t.Lease(at, "r"); lease != nil {
		return lease.Token
	}
	return 0
}

// asking is a session with one endpoint that has asked for 100 of `r`, and the number of that request.
func asking(t *testing.T) (tester, uint64) {
	s := tester{t, newSession("a:1")}
	s.Want(0, "r", wants(100), Safe)
	return s, s.poll(0).Number
}

// leased is a session that received a lease of 40 at 10 ms, for a request sent at time 0.
func leased(t *testing.T) tester {
	s, number := asking(t)
	s.answer(10*ms, number, given("r", 40, 1))
	return s
}

// refreshing is a session with the lease of leased that has sent another request, and the number of that request.
func refreshing(t *testing.T, at time.Duration) (tester, uint64) {
	s := leased(t)
	s.Hint(at, "r")
	outgoing := s.poll(at)
	s.names(outgoing, 1, 0)
	return s, outgoing.Number
}

// When requests are sent.

func TestANewResourceIsAskedForAtOnceAndRefreshedAfterItsInterval(t *testing.T) {
	s := leased(t)
	s.pollsNothing(10 * ms)
	wake := s.Wake(10 * ms)
	if wake < 4_500*ms || wake > 5_010*ms {
		t.Fatalf("refreshed at %v", wake)
	}
	s.pollsNothing(wake - 1)
	refresh := s.poll(wake)
	s.names(refresh, 1, 0)
	s.wakes(wake, wake+3*time.Second)
}

func TestOneRequestAsksForAllResourcesWhenTheFirstIsDue(t *testing.T) {
	s := tester{t, newSession("a:1")}
	for _, name := range []string{"c", "a", "b"} {
		s.Want(0, name, wants(1), Safe)
	}
	first := s.poll(0)
	slow := func(name string) GrantedLease {
		lease := given(name, 1, 1)
		lease.Refresh = 50 * time.Second
		return lease
	}
	s.answer(ms, first.Number, slow("a"), given("b", 1, 2), slow("c"))
	wake := s.Wake(ms)
	if wake > 5_001*ms {
		t.Fatalf("the shortest interval counts, not %v", wake)
	}
	if second := s.poll(wake); len(first.Asks) != 3 || len(second.Asks) != 3 {
		t.Fatalf("%d and %d resources", len(first.Asks), len(second.Asks))
	}
}

func TestTheResourcesThatWaitedLongestGoIntoTheRequestFirst(t *testing.T) {
	s := tester{t, New(Settings{Endpoints: []string{"a:1"}, Pace: DefaultPace(), ResourcesPerRequest: 1})}
	for i, name := range []string{"z", "m", "a"} {
		s.Want(time.Duration(i)*ms, name, wants(1), Safe)
	}
	var order []string
	for range 3 {
		outgoing := s.poll(3 * ms)
		order = append(order, outgoing.Asks[0].ID)
		s.answer(3*ms, outgoing.Number, given(outgoing.Asks[0].ID, 1, 1))
	}
	if !slices.Equal(order, []string{"z", "m", "a"}) {
		t.Fatal(order)
	}
}

func TestAResourceLeftOutOfAnAnswerKeepsItsLeaseAndInterval(t *testing.T) {
	s := leased(t)
	again := s.Wake(10 * ms)
	s.answer(again, s.poll(again).Number)
	s.hasCapacity(again, "r", 40)
	if next := s.Wake(again) - again; next < 4*time.Second || next > 5*time.Second {
		t.Fatalf("again after %v", next)
	}
}

func TestARefusedResourceIsAskedForAgainAfterTheMinimumInterval(t *testing.T) {
	for refreshMin, again := range map[time.Duration]time.Duration{time.Second: 1_010 * ms, 0: 110 * ms} {
		s, number := asking(t)
		s.pace.RefreshMin = refreshMin
		s.answer(10*ms, number)
		s.wakes(10*ms, again)
	}
}

func TestAChangeOfDemandByMoreThanATenthIsSentAtOnce(t *testing.T) {
	s := leased(t)
	s.Want(time.Second, "r", wants(109), Safe)
	s.pollsNothing(time.Second)
	s.Want(time.Second, "r", wants(111), Safe)
	if amount := s.poll(time.Second).Asks[0].Demand.Amount; amount != 111 {
		t.Fatal(amount)
	}
	asked := Wants{Amount: 10, Outstanding: 5}
	for _, c := range []struct {
		wants  Wants
		urgent bool
	}{
		{Wants{Amount: 11, Outstanding: 5}, false},
		{Wants{Amount: 9, Outstanding: 5}, false},
		{Wants{Amount: 11.1, Outstanding: 5}, true},
		{Wants{Amount: 8.9, Outstanding: 5}, true},
		{Wants{Amount: 10, Outstanding: 4}, true},
		{Wants{Amount: 10, Outstanding: 5, Priority: 1}, true},
	} {
		if c.wants.isUrgent(&asked) != c.urgent {
			t.Errorf("%+v", c.wants)
		}
	}
}

func TestAHintOrNewDemandDuringARequestIsFollowedAfterItsAnswer(t *testing.T) {
	s, number := refreshing(t, time.Second)
	s.Hint(1_005*ms, "r")
	s.Hint(1_005*ms, "unknown")
	s.pollsNothing(1_005 * ms)
	s.answer(1_010*ms, number, given("r", 40, 2))
	s.wakes(1_010*ms, 1_100*ms)
	hinted := s.poll(1_100 * ms)
	s.Want(1_110*ms, "r", wants(90_000), Safe)
	s.answer(1_300*ms, hinted.Number, given("r", 10, 1))
	if amount := s.poll(1_300 * ms).Asks[0].Demand.Amount; amount != 90_000 {
		t.Fatal(amount)
	}
}

func TestAShrunkLeaseIsConfirmedAfter100msIfItHasAToken(t *testing.T) {
	for _, token := range []uint64{2, 0} {
		s, number := refreshing(t, time.Second)
		s.answer(1_010*ms, number, given("r", 20, token))
		if token == 0 {
			if wake := s.Wake(1_010 * ms); wake <= 5*time.Second {
				t.Fatalf("without a token it asks at %v", wake)
			}
			continue
		}
		s.wakes(1_010*ms, 1_110*ms)
		confirm := s.poll(1_110 * ms)
		s.names(confirm, 2, 0)
		s.answer(1_120*ms, confirm.Number)
		if wake := s.Wake(1_120 * ms); wake <= 5*time.Second {
			t.Fatalf("it confirms once, not again at %v", wake)
		}
	}
}

func TestAPostponedResourceIsNotAskedForEarlier(t *testing.T) {
	s := leased(t)
	second := s.poll(6 * time.Second)
	s.Postpone("r", 30*time.Second)
	s.answer(6_010*ms, second.Number, given("r", 40, 2))
	if s.IsDue(30*time.Second-1) || !s.IsDue(30*time.Second) {
		t.Fatal("it is due at another time")
	}
	s.Want(20*time.Second, "s", wants(1), Safe)
	if together := s.poll(20 * time.Second); len(together.Asks) != 1 || together.Asks[0].ID != "s" {
		t.Fatalf("together with another resource: %+v", together)
	}
}

// Where requests go, and what follows a failure.

func TestFailuresAreFollowedByGrowingPausesAndTheNextEndpoint(t *testing.T) {
	s := tester{t, newSession("a:1", "b:1")}
	s.Want(0, "r", wants(1), Safe)
	var now time.Duration
	var pauses []time.Duration
	last := ""
	for range 14 {
		outgoing := s.poll(now)
		if outgoing.Target == last {
			t.Fatalf("%s twice", last)
		}
		last = outgoing.Target
		s.Failed(now, outgoing.Number)
		s.pollsNothing(now)
		wake := s.Wake(now)
		pauses = append(pauses, wake-now)
		now = wake
	}
	if pauses[0] < 50*ms || pauses[0] > 100*ms || pauses[13] < 1_250*ms || pauses[13] > 2_500*ms {
		t.Fatal(pauses)
	}
	s.answer(now, s.poll(now).Number, given("r", 1, 1))
	s.Hint(now+time.Second, "r")
	s.Failed(now+time.Second, s.poll(now+time.Second).Number)
	if wake := s.Wake(now + time.Second); wake-now > 1_100*ms {
		t.Fatalf("an answer makes the next pause short, not %v", wake-now-time.Second)
	}
}

func TestRedirectsAreFollowedAtOnceButAtMostFiveInARow(t *testing.T) {
	s := tester{t, newSession("a:1")}
	s.Want(0, "r", wants(1), Safe)
	var targets []string
	for outgoing := s.Poll(0); outgoing != nil; outgoing = s.Poll(0) {
		targets = append(targets, outgoing.Target)
		master := "b:1"
		if outgoing.Target == master {
			master = "a:1"
		}
		s.Redirected(0, outgoing.Number, master)
	}
	if len(targets) != 6 || s.Failures() != 1 || s.Wake(0) < 50*ms {
		t.Fatal(targets, s.Failures(), s.Wake(0))
	}
	// A master that moves now and then is followed each time.
	s = leased(t)
	for n := 1; n < 20; n++ {
		at := time.Duration(n) * time.Second
		s.Hint(at, "r")
		s.Redirected(at, s.poll(at).Number, fmt.Sprintf("%c:1", 'b'+n%2))
		s.answer(at, s.poll(at).Number, given("r", 40, uint64(n)))
	}
	if s.Failures() != 0 {
		t.Fatal(s.Failures())
	}
}

func TestAServerThatNamesItselfOrNoMasterIsAFailure(t *testing.T) {
	for _, master := range []string{"a:1", ""} {
		s, number := asking(t)
		s.Redirected(0, number, master)
		s.pollsNothing(0)
		if s.Failures() != 1 {
			t.Fatalf("%q: %d failures", master, s.Failures())
		}
	}
}

func TestServersWithoutAMasterAreAskedAgainWithinASecond(t *testing.T) {
	s := tester{t, newSession("a:1")}
	s.Want(0, "r", wants(1), Safe)
	var now time.Duration
	for range 20 {
		s.Redirected(now, s.poll(now).Number, "")
		wake := s.Wake(now)
		if wake-now > time.Second {
			t.Fatalf("again after %v", wake-now)
		}
		now = wake
	}
	s.Failed(now, s.poll(now).Number)
	if s.Wake(now)-now <= time.Second {
		t.Fatal("a failed server waits longer")
	}
}

func TestSessionsBeginWithDifferentEndpoints(t *testing.T) {
	first := 0
	for seed := range uint64(100) {
		s := New(Settings{Endpoints: []string{"a:1", "b:1"}, Pace: DefaultPace(), Seed: seed})
		if s.Target() == "a:1" {
			first++
		}
	}
	if first < 20 || first > 80 {
		t.Fatalf("%d of 100 begin with the first", first)
	}
}

func TestLearntPeersAreTriedAfterTheConfiguredEndpointsAndReplaced(t *testing.T) {
	r := newRoute([]string{"a:1"}, 0)
	tries := func(times int) (targets []string) {
		for range times {
			r.failed()
			targets = append(targets, r.target)
		}
		return targets
	}
	r.learn([]string{"b:1", "a:1", "c:1", "b:1"})
	if got := tries(4); !slices.Equal(got, []string{"b:1", "c:1", "a:1", "b:1"}) {
		t.Fatal(got)
	}
	r.learn([]string{"d:1"})
	if got := tries(3); !slices.Equal(got, []string{"a:1", "d:1", "a:1"}) {
		t.Fatal(got)
	}
	many := make([]string, 100_000)
	for i := range many {
		many[i] = fmt.Sprintf("p%d:1", i)
	}
	r.learn(many)
	if len(r.endpoints) != 1+maxLearntPeers {
		t.Fatal(len(r.endpoints))
	}
}

// What may be used.

func TestALeaseStartsWhenItsRequestWasSent(t *testing.T) {
	s := tester{t, newSession("a:1")}
	s.Want(0, "r", wants(100), Safe)
	s.answer(2_000*ms, s.poll(100*ms).Number, given("r", 40, 1))
	s.hasCapacity(60_100*ms-1, "r", 40)
	s.hasCapacity(60_100*ms, "r", 1.5)
	if usable, _ := s.Usable(3_000*ms, "r"); usable.Until != 60_100*ms || usable.Then != 1.5 {
		t.Fatalf("%+v", usable)
	}
}

func TestTheModeDecidesAfterTheExpiryAndAfterAFailure(t *testing.T) {
	for _, c := range []struct {
		mode            Mode
		expired, failed float64
	}{{Safe, 1.5, 0}, {Pessimistic, 0, 0}, {Optimistic, 100, 100}} {
		s := leased(t)
		s.Want(20*ms, "r", wants(100), c.mode)
		s.hasCapacity(end-1, "r", 40)
		s.hasCapacity(end, "r", c.expired)

		s, number := asking(t)
		s.Want(0, "r", wants(100), c.mode)
		if usable, _ := s.Usable(ms, "r"); usable.Basis != Unknown || usable.Capacity != 0 {
			t.Fatalf("%v: %+v", c.mode, usable)
		}
		s.Failed(2*ms, number)
		if usable, _ := s.Usable(2*ms, "r"); usable.Basis != Fallback || usable.Capacity != c.failed {
			t.Fatalf("%v: %+v", c.mode, usable)
		}
	}
}

func TestNegativeGrantsOpenNothingAndNegativeSafeCapacitiesAreUnlimited(t *testing.T) {
	s, number := asking(t)
	lease := given("r", -40, 1)
	lease.Safe = -1
	s.answer(ms, number, lease)
	s.hasCapacity(ms, "r", 0)
	s.hasCapacity(end, "r", math.Inf(1))
	if granted(math.NaN()) != 0 || safe(math.NaN()) != 0 {
		t.Fatal("NaN opens a limiter")
	}
}

func TestTheSafeCapacityLastReceivedIsKept(t *testing.T) {
	s, number := refreshing(t, time.Second)
	lease := given("r", 40, 2)
	lease.HasSafe = false
	s.answer(time.Second, number, lease)
	s.hasCapacity(61*time.Second, "r", 1.5)
}

func TestChangesAreReportedOnceAndAnExpiryWakes(t *testing.T) {
	s := leased(t)
	changes := func(at time.Duration) (reported []float64) {
		s.Changes(at, func(_ string, usable Usable) { reported = append(reported, usable.Capacity) })
		return reported
	}
	if got := changes(10 * ms); !slices.Equal(got, []float64{40}) {
		t.Fatal(got)
	}
	if got := changes(11 * ms); len(got) > 0 {
		t.Fatal(got)
	}
	refresh := s.poll(end - time.Second)
	s.wakes(end-time.Second, end)
	if got := changes(end); !slices.Equal(got, []float64{1.5}) {
		t.Fatal(got)
	}
	s.Failed(end+ms, refresh.Number)
	if got := changes(end + ms); len(got) > 0 {
		t.Fatal(got)
	}
}

// Which answers count.

func TestOnlyTheAnswerToTheLatestRequestCounts(t *testing.T) {
	s, first := asking(t)
	s.Want(ms, "s", wants(1), Safe)
	s.pollsNothing(3 * time.Second)
	if s.Answered(3_001*ms, first, []GrantedLease{given("r", 40, 1)}) {
		t.Fatal("the request was abandoned")
	}
	second := s.poll(3_100 * ms)
	if s.Answered(3_101*ms, first, []GrantedLease{given("r", 40, 1)}) || s.Redirected(3_101*ms, first, "x:1") || s.Failed(3_101*ms, first) {
		t.Fatal("another request is in flight")
	}
	if s.token(3_101*ms) != 0 || s.InFlight() != second.Number || s.Failures() != 1 || s.Target() != "a:1" {
		t.Fatal("the late answer changed something")
	}
}

func TestLeasesThatTheRequestDidNotAskForAreIgnored(t *testing.T) {
	s, number := asking(t)
	s.Want(ms, "s", wants(1), Safe)
	s.answer(2*ms, number, given("s", 40, 1), given("x", 40, 1))
	if s.Lease(2*ms, "s") != nil || s.Lease(2*ms, "x") != nil {
		t.Fatal("a lease that was not asked for")
	}
}

func TestAnAnswerCountsOnlyBeforeTheExpiryOfTheLeaseThatItsRequestNamed(t *testing.T) {
	for at, counts := range map[time.Duration]bool{end - 1: true, end: false, end + time.Second: false} {
		s, asked := refreshing(t, end-500*ms)
		s.answer(at, asked, given("r", 50, 2))
		if (s.token(at) != 0) != counts {
			t.Fatalf("at %v", at)
		}
	}
}

func TestADroppedAnswerIsFollowedByARequestThatNamesTheExpiredLease(t *testing.T) {
	for sent, again := range map[time.Duration]time.Duration{end - 2*time.Second: end, end - 20*ms: end + 80*ms} {
		s, asked := refreshing(t, sent)
		s.answer(end, asked, given("r", 50, 2))
		s.wakes(end, again)
		outgoing := s.poll(again)
		s.names(outgoing, 0, 1)
		// It named no live lease, so its answer counts at any time before the deadline.
		late := again + 2_999*ms
		s.answer(late, outgoing.Number, given("r", 60, 3))
		s.hasCapacity(late, "r", 60)
	}
}

func TestOtherLeasesOfALateAnswerCount(t *testing.T) {
	s := leased(t)
	s.Want(time.Second, "s", wants(1), Safe)
	s.answer(1_001*ms, s.poll(time.Second).Number, given("s", 1, 2))
	refresh := s.poll(end - 500*ms)
	s.answer(end, refresh.Number, given("r", 50, 3), given("s", 2, 4))
	s.hasCapacity(end, "r", 1.5)
	s.hasCapacity(end, "s", 2)
}

func TestAnswersThatAlwaysComeTooLateCauseNoRequestStorm(t *testing.T) {
	s := tester{t, newSession("a:1")}
	s.Want(0, "r", wants(100), Safe)
	var now time.Duration
	sent, counted := 0, 0
	for now < 100*time.Second {
		if outgoing := s.Poll(now); outgoing != nil {
			sent++
			// It refreshes when a third of three seconds is left, which is less than an answer takes.
			now += 1_200 * ms
			lease := given("r", 1, uint64(sent))
			lease.Length = 3 * time.Second
			s.answer(now, outgoing.Number, lease)
			if s.Lease(now, "r") != nil {
				counted++
			}
		}
		now = s.Wake(now)
	}
	// Every second answer counts: that to the request that follows a dropped answer at once.
	if sent < 40 || sent > 60 || counted < sent/2 {
		t.Fatalf("%d of %d in 100 s", counted, sent)
	}
}

// Releases.

func TestAfterAReleaseNoAnswerToAnEarlierRequestCounts(t *testing.T) {
	s, asked := refreshing(t, time.Second)
	s.Release("r")
	s.pollsNothing(4 * time.Second)
	wake := s.Wake(4 * time.Second)
	release := s.poll(wake)
	s.releasesLease(release, Release{ID: "r", Token: 1})
	isLate := func(at time.Duration) bool { return !s.Answered(at, asked, []GrantedLease{given("r", 50, 2)}) }
	if !isLate(wake) || s.InFlight() != release.Number {
		t.Fatal("it is not the answer to the release")
	}
	s.Want(wake, "r", wants(100), Safe)
	if !isLate(wake) {
		t.Fatal("during the release")
	}
	s.answer(wake, release.Number)
	if !isLate(wake) {
		t.Fatal("after the release")
	}
	soon := s.Wake(wake)
	anew := s.poll(soon)
	s.names(anew, 0, 0)
	if !isLate(soon) || s.token(soon) != 0 {
		t.Fatal("during the next request")
	}
	s.answer(soon, anew.Number, given("r", 60, 3))
	s.hasCapacity(soon, "r", 60)
}

func TestAReleaseWaitsForTheRequestInFlightAndNamesTheNewestLease(t *testing.T) {
	s, number := refreshing(t, time.Second)
	s.Want(time.Second, "s", wants(1), Safe)
	s.Release("r")
	s.pollsNothing(1_001 * ms)
	s.answer(1_002*ms, number, given("r", 50, 2))
	release := s.poll(1_002 * ms)
	s.releasesLease(release, Release{ID: "r", Token: 2})
	s.answer(1_003*ms, release.Number)
	if next := s.poll(1_003 * ms); next.Asks[0].ID != "s" {
		t.Fatalf("%+v", next)
	}
}

// An unnamed release that arrives late could free a newer lease.
func TestWithoutALiveLeaseNothingIsReleased(t *testing.T) {
	unasked := tester{t, newSession("a:1")}
	unasked.Want(0, "r", wants(1), Safe)
	unasked.Release("r")
	unasked.pollsNothing(0)

	unanswered, number := asking(t)
	unanswered.Release("r")
	unanswered.Failed(ms, number)
	unanswered.pollsNothing(unanswered.Wake(ms))

	late, asked := refreshing(t, end-500*ms)
	late.Release("r")
	late.answer(end, asked, given("r", 50, 2))
	late.pollsNothing(end)
	late.wakes(end, Never)
	for _, s := range []tester{unasked, unanswered, late} {
		if !s.IsIdle() {
			t.Fatal("it is not idle")
		}
	}
}

func TestAResourceWantedAgainBeforeItsReleaseKeepsItsLeaseAndIsReportedAgain(t *testing.T) {
	s := leased(t)
	s.Changes(10*ms, func(string, Usable) {})
	s.Release("r")
	s.Want(time.Second, "r", wants(100), Safe)
	reported := 0.0
	s.Changes(time.Second, func(_ string, usable Usable) { reported = usable.Capacity })
	if reported != 40 {
		t.Fatal(reported)
	}
	s.names(s.poll(time.Second), 1, 0)
}

// The server may have processed the release.
func TestAResourceWantedAgainAfterAReleaseWasSentStartsWithoutALease(t *testing.T) {
	for _, failed := range []bool{false, true} {
		s := leased(t)
		s.Release("r")
		release := s.poll(time.Second)
		if failed {
			s.Failed(1_001*ms, release.Number)
		}
		s.Want(1_600*ms, "r", wants(100), Safe)
		s.hasCapacity(1_600*ms, "r", 0)
		s.Answered(1_610*ms, release.Number, nil)
		s.names(s.poll(s.Wake(1_610*ms)), 0, 0)
	}
}

func TestFailingReleasesDoNotPreventRefreshes(t *testing.T) {
	s := leased(t)
	s.Want(20*ms, "s", wants(1), Safe)
	s.answer(20*ms, s.poll(20*ms).Number, given("s", 1, 2))
	s.Release("r")
	now, refreshes, releases := 20*ms, 0, 0
	for now < 50*time.Second {
		if outgoing := s.Poll(now); outgoing != nil {
			if len(outgoing.Asks) > 0 {
				refreshes++
				s.answer(now, outgoing.Number, given("s", 1, uint64(2+refreshes)))
			} else {
				releases++
				s.Failed(now, outgoing.Number)
			}
		}
		now = s.Wake(now)
		s.hasCapacity(now, "s", 1)
	}
	if refreshes < 6 || releases < 10 || releases > 100 {
		t.Fatalf("%d refreshes and %d releases in 50 s", refreshes, releases)
	}
}

func TestReleasingEverythingEndsAPauseAndIsBoundedPerRequest(t *testing.T) {
	s := tester{t, New(Settings{Endpoints: []string{"a:1"}, Pace: DefaultPace(), ResourcesPerRequest: 2})}
	for _, name := range []string{"a", "b", "c"} {
		s.Want(0, name, wants(1), Safe)
	}
	for range 2 {
		outgoing := s.poll(0)
		var leases []GrantedLease
		for _, ask := range outgoing.Asks {
			leases = append(leases, given(ask.ID, 1, 1))
		}
		s.answer(0, outgoing.Number, leases...)
	}
	s.Hint(time.Second, "a")
	s.Failed(1_001*ms, s.poll(time.Second).Number)
	s.pollsNothing(1_002 * ms)
	s.ReleaseAll()
	first := s.poll(1_002 * ms)
	s.releasesLease(first, Release{ID: "a", Token: 1}, Release{ID: "b", Token: 1})
	s.answer(1_002*ms, first.Number)
	s.releasesLease(s.poll(1_002*ms), Release{ID: "c", Token: 1})
}

// Outages.

func TestARecoveredServerIsAskedWithinOneRefreshInterval(t *testing.T) {
	for _, endpoints := range [][]string{{"a:1"}, {"a:1", "b:1"}, {"a:1", "b:1", "c:1"}} {
		for seed := range uint64(20) {
			s := tester{t, New(Settings{Endpoints: endpoints, Pace: DefaultPace(), ResourcesPerRequest: 10, Seed: seed})}
			s.Want(0, "r", wants(100), Safe)
			lease := given("r", 40, 1)
			lease.Refresh = time.Second
			s.answer(ms, s.poll(0).Number, lease)
			last := map[string]time.Duration{}
			for now := s.Wake(0); now < 600*time.Second; now = max(now, s.Wake(now)) {
				outgoing := s.Poll(now)
				if outgoing == nil {
					continue
				}
				// A server may recover at any time. The longest time without a request to it bounds the time until the
				// session notices.
				if before, known := last[outgoing.Target]; known && now-before > time.Second {
					t.Fatalf("%s was not asked for %v", outgoing.Target, now-before)
				}
				last[outgoing.Target] = now
				s.Failed(now, outgoing.Number)
			}
		}
	}
}

func TestZeroSettingsDoNotCauseARequestStorm(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 0))
	var pace Pace
	for failures := 1; failures < 100; failures++ {
		if pause := pace.backoff(failures, 0, 0, rng); pause < 50*ms {
			t.Fatal(pause)
		}
	}
	for _, left := range []time.Duration{0, ms, time.Minute} {
		if wait := pace.refresh(0, left, rng); wait < 90*ms {
			t.Fatal(wait)
		}
	}
}

// Any sequence of calls keeps the rules that a server relies on.
func TestAnyStepsKeepTheRules(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		s := New(Settings{Endpoints: []string{"a:1", "b:1"}, Pace: DefaultPace(), ResourcesPerRequest: 2, Seed: seed})
		names := []string{"p", "q", "r"}
		var now, sent time.Duration
		var flight *Outgoing
		ends := map[string]time.Duration{}
		for range 400 {
			now += time.Duration(rng.Int64N(int64(4 * time.Second)))
			name := names[rng.IntN(len(names))]
			switch rng.IntN(8) {
			case 0:
				s.Release(name)
				delete(ends, name)
			case 1:
				s.Hint(now, name)
			case 2, 3:
				s.Want(now, name, wants(rng.Float64()*100), Safe)
			default:
				if flight != nil {
					leases := []GrantedLease{}
					for _, ask := range flight.Asks {
						leases = append(leases, given(ask.ID, rng.Float64()*100, rng.Uint64N(1000)))
					}
					switch rng.IntN(4) {
					case 0:
						s.Failed(now, flight.Number)
					case 1:
						s.Redirected(now, flight.Number, "b:1")
					default:
						if s.Answered(now, flight.Number, leases) {
							for _, ask := range flight.Asks {
								ends[ask.ID] = sent + 60*time.Second
							}
						}
					}
					flight = nil
				}
			}
			if outgoing := s.Poll(now); outgoing != nil {
				if (len(outgoing.Asks) == 0) == (len(outgoing.Releases) == 0) {
					t.Fatal("a request asks or releases")
				}
				for _, ask := range outgoing.Asks {
					if ask.Has != nil && !ask.Has.IsLive(now) || ask.Had != nil && ask.Had.IsLive(now) {
						t.Fatal("a lease is named wrongly")
					}
				}
				flight, sent = outgoing, now
			}
			for _, name := range names {
				if lease := s.Lease(now, name); lease != nil && ends[name] != 0 && lease.End > ends[name] {
					t.Fatalf("seed %d: a lease lasts longer than it was granted", seed)
				}
			}
			if wake := s.Wake(now); s.InFlight() == 0 && wake == Never && !s.IsIdle() {
				t.Fatalf("seed %d: it never wakes", seed)
			}
		}
	}
}
