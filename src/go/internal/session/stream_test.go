package session

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"
)

// streaming returns a session that renews resources by a stream, each with a lease of 10 and the token index + 1, given at
// 10 ms.
func streaming(t *testing.T, names ...string) tester {
	t.Helper()
	s := tester{t, newSession("a:1", "b:1")}
	s.OfferStream(s.Target(), 1)
	for _, name := range names {
		s.Want(0, name, wants(10), Safe)
	}
	outgoing := s.message(0)
	if request := outgoing.Stream; request.Sequence != 1 || len(request.Renewed) != 0 || len(request.Stated) != len(names) {
		t.Fatalf("%+v", request)
	}
	reply := &StreamReply{}
	for i, ask := range outgoing.Stream.Stated {
		index := outgoing.Stream.Indexes[i]
		reply.Granted = append(reply.Granted, StreamGrant{index, given(ask.ID, 10, uint64(index)+1)})
	}
	s.streamAnswer(10*ms, outgoing, reply)
	return s
}

func (t tester) message(at time.Duration) *Outgoing {
	t.Helper()
	outgoing := t.poll(at)
	if outgoing.Stream == nil {
		t.Fatalf("at %v it sends %+v", at, outgoing)
	}
	return outgoing
}

func (t tester) streamAnswer(at time.Duration, outgoing *Outgoing, reply *StreamReply) {
	t.Helper()
	if !t.StreamAnswered(at, outgoing.Number, reply) {
		t.Fatalf("the answer to %d does not count", outgoing.Number)
	}
}

// sends checks what a message states, as INDEX:ID:TOKEN with the token of the live lease, and what it renews.
func (t tester) sends(outgoing *Outgoing, stated []string, renewed ...IndexRange) {
	t.Helper()
	var states []string
	for i, ask := range outgoing.Stream.Stated {
		token := uint64(0)
		if ask.Has != nil {
			token = ask.Has.Token
		}
		states = append(states, fmt.Sprintf("%d:%s:%d", outgoing.Stream.Indexes[i], ask.ID, token))
	}
	if !slices.Equal(states, stated) || !slices.Equal(outgoing.Stream.Renewed, renewed) {
		t.Fatalf("it states %v and renews %v, not %v and %v", states, outgoing.Stream.Renewed, stated, renewed)
	}
}

func (t tester) endsAt(at time.Duration, name string, expected time.Duration) {
	t.Helper()
	if lease := t.Lease(at, name); lease == nil || lease.End != expected {
		t.Fatalf("%s has %+v at %v", name, lease, at)
	}
}

func TestWhatStaysIsRenewedByItsIndexFromWhenTheMessageWasSent(t *testing.T) {
	s := streaming(t, "r", "s", "t")
	s.Changes(10*ms, func(string, Usable) {})
	outgoing := s.message(5_000 * ms)
	s.sends(outgoing, nil, IndexRange{0, 3})
	if outgoing.Stream.Sequence != 2 {
		t.Fatal(outgoing.Stream)
	}
	s.streamAnswer(5_040*ms, outgoing, &StreamReply{Unix: 105})
	s.endsAt(5_040*ms, "s", 65_000*ms)
	if lease := s.Lease(5_040*ms, "s"); lease.Token != 2 || lease.Wire.ExpiryTime != 165 {
		t.Fatalf("%+v", lease)
	}
	if wake := s.Wake(5_040 * ms); wake < 9_500*ms || wake > 10_040*ms {
		t.Fatal(wake)
	}
	reported := map[string]time.Duration{}
	s.Changes(5_040*ms, func(id string, usable Usable) { reported[id] = usable.Until })
	if len(reported) != 3 || reported["t"] != 65_000*ms {
		t.Fatalf("the new expiry is reported: %v", reported)
	}
}

func TestAChangedDemandIsStatedAndTheOthersAreRenewed(t *testing.T) {
	s := streaming(t, "r", "s", "t")
	s.Want(4_000*ms, "s", wants(10.5), Safe)
	outgoing := s.message(5_000 * ms)
	s.sends(outgoing, []string{"1:s:2"}, IndexRange{0, 1}, IndexRange{2, 1})
	s.streamAnswer(5_040*ms, outgoing, &StreamReply{Granted: []StreamGrant{{1, given("", 10.5, 9)}}})
	s.hasCapacity(5_040*ms, "s", 10.5)
	s.endsAt(5_040*ms, "r", 65_000*ms)
	s.sends(s.message(10_000*ms), nil, IndexRange{0, 3})
}

func TestAnUrgentChangeDoesNotRenewTheOthers(t *testing.T) {
	s := streaming(t, "r", "s")
	s.Want(1_000*ms, "s", wants(100), Safe)
	s.sends(s.message(1_000*ms), []string{"1:s:2"})
}

func TestWhatIsOutstandingOrUsedIsStated(t *testing.T) {
	s := streaming(t, "r", "s", "t")
	s.Want(4_000*ms, "r", Wants{Amount: 10, Outstanding: 12}, Safe)
	s.Want(4_000*ms, "t", Wants{Amount: 10, Usage: &Usage{}}, Safe)
	s.sends(s.message(5_000*ms), []string{"0:r:1", "2:t:3"}, IndexRange{1, 1})
}

func TestACutLeaseIsStatedAlthoughTheDemandIsTheSame(t *testing.T) {
	s := streaming(t, "r", "s")
	s.streamAnswer(5_040*ms, s.message(5_000*ms), &StreamReply{Granted: []StreamGrant{{0, given("", 4, 9)}}})
	confirmation := s.message(5_140 * ms)
	s.sends(confirmation, []string{"0:r:9"})
	s.streamAnswer(5_150*ms, confirmation, &StreamReply{Granted: []StreamGrant{{0, given("", 4, 10)}}})
	s.sends(s.message(10_000*ms), nil, IndexRange{0, 2})
}

func TestWhatWasLeftOutKeepsItsLeaseAndIsStatedAgain(t *testing.T) {
	s := streaming(t, "r", "s")
	s.streamAnswer(5_040*ms, s.message(5_000*ms), &StreamReply{LeftOut: []uint32{1, 7}})
	s.endsAt(5_040*ms, "r", 65_000*ms)
	s.endsAt(5_040*ms, "s", 60_000*ms)
	s.sends(s.message(10_000*ms), []string{"1:s:2"}, IndexRange{0, 1})
}

func TestARenewalThatIsAnsweredAfterTheEndOfTheLeaseDoesNotCount(t *testing.T) {
	s := streaming(t, "r")
	s.streamAnswer(60_500*ms, s.message(58_000*ms), &StreamReply{})
	if lease := s.Lease(60_500*ms, "r"); lease != nil {
		t.Fatalf("%+v", lease)
	}
	outgoing := s.message(60_500 * ms)
	s.sends(outgoing, []string{"0:r:0"})
	if had := outgoing.Stream.Stated[0].Had; had == nil || had.Token != 1 {
		t.Fatal(had)
	}
}

func TestAfterARestartEverythingIsStatedOnAnotherStream(t *testing.T) {
	s := streaming(t, "r", "s")
	before := s.message(5_000 * ms)
	s.streamAnswer(5_010*ms, before, &StreamReply{Restart: true})
	outgoing := s.message(5_010 * ms)
	s.sends(outgoing, []string{"0:r:1", "1:s:2"})
	if outgoing.Stream.Stream <= before.Stream.Stream || outgoing.Stream.Sequence != 1 {
		t.Fatal(outgoing.Stream)
	}
	s.endsAt(5_010*ms, "r", 60_000*ms)
}

func TestALostAnswerEndsTheStreamAndAnAnswerThatComesLaterDoesNotCount(t *testing.T) {
	s := streaming(t, "r")
	before := s.message(5_000 * ms)
	s.OfferStream("b:1", 1)
	s.OfferStream("a:1", 1)
	s.pollsNothing(8_000 * ms)
	if s.StreamAnswered(8_001*ms, before.Number, &StreamReply{}) {
		t.Fatal("it counts")
	}
	s.endsAt(8_001*ms, "r", 60_000*ms)
	outgoing := s.message(s.Wake(8_001 * ms))
	if outgoing.Stream.Stream <= before.Stream.Stream || outgoing.Stream.Sequence != 1 {
		t.Fatal(outgoing.Stream)
	}
}

func TestARefusedStreamIsReplacedByGetCapacityAtOnceAndForTenMinutes(t *testing.T) {
	s := tester{t, newSession("a:1")}
	s.OfferStream("a:1", 1)
	s.Want(0, "r", wants(10), Safe)
	if !s.StreamRefused(5*ms, s.message(0).Number) {
		t.Fatal("it does not count")
	}
	at := 5 * ms
	for at < 600_000*ms {
		outgoing := s.poll(at)
		if len(outgoing.Asks) != 1 || s.Failures() != 0 {
			t.Fatalf("at %v: %+v, %d failures", at, outgoing, s.Failures())
		}
		s.answer(at, outgoing.Number, given("r", 10, uint64(at)))
		at = s.Wake(at)
	}
	outgoing := s.message(max(at, 600_005*ms))
	if outgoing.Stream.Sequence != 1 || outgoing.Stream.Stated[0].ID != "r" {
		t.Fatal(outgoing.Stream)
	}
}

func TestAnOpeningThatIsNotAnsweredIsFollowedByGetCapacity(t *testing.T) {
	s := tester{t, newSession("a:1")}
	s.OfferStream("a:1", 1)
	s.Want(0, "r", wants(10), Safe)
	s.message(0)
	s.pollsNothing(3_000 * ms)
	if outgoing := s.poll(s.Wake(3_000 * ms)); len(outgoing.Asks) != 1 {
		t.Fatal(outgoing)
	}
}

func TestFewResourcesAreAskedForByGetCapacity(t *testing.T) {
	s := tester{t, newSession("a:1")}
	s.OfferStream("a:1", 2)
	s.Want(0, "r", wants(10), Safe)
	if outgoing := s.poll(0); len(outgoing.Asks) != 1 || s.Stream() != 0 {
		t.Fatal(outgoing)
	}
}

func TestAReleasedResourceLeavesTheRenewalsAndItsIndexIsNotUsedAgain(t *testing.T) {
	s := streaming(t, "r", "s", "t")
	s.Release("s")
	releasing := s.poll(1_000 * ms)
	s.releasesLease(releasing, Release{ID: "s", Token: 2})
	s.answer(1_010*ms, releasing.Number)
	s.Want(1_100*ms, "s", wants(10), Safe)
	outgoing := s.message(1_200 * ms)
	s.sends(outgoing, []string{"3:s:0"})
	s.streamAnswer(1_210*ms, outgoing, &StreamReply{LeftOut: []uint32{3}})
	outgoing = s.message(5_000 * ms)
	if !slices.Equal(outgoing.Stream.Renewed, []IndexRange{{0, 1}, {2, 1}}) {
		t.Fatal(outgoing.Stream)
	}
}

func TestARedirectEndsTheStream(t *testing.T) {
	s := streaming(t, "r")
	if !s.Redirected(5_010*ms, s.message(5_000*ms).Number, "c:1") {
		t.Fatal("it does not count")
	}
	outgoing := s.poll(5_010 * ms)
	if outgoing.Target != "c:1" {
		t.Fatal(outgoing)
	}
	s.names(outgoing, 1, 0)
}

// Where an int has 32 bits, these indexes are negative.
func TestIndexesThatWereNotStatedAreIgnored(t *testing.T) {
	s := streaming(t, "r")
	s.streamAnswer(5_040*ms, s.message(5_000*ms), &StreamReply{
		Granted: []StreamGrant{{1, given("", 5, 9)}, {1 << 31, given("", 5, 9)}, {math.MaxUint32, given("", 5, 9)}},
		LeftOut: []uint32{1, 1 << 31, math.MaxUint32},
	})
	s.hasCapacity(5_040*ms, "r", 10)
	s.endsAt(5_040*ms, "r", 65_000*ms)
}

func TestALeaseThatAMessageDidNotAskForIsIgnored(t *testing.T) {
	s := streaming(t, "r", "s")
	s.Want(1_000*ms, "s", wants(100), Safe)
	outgoing := s.message(1_000 * ms)
	s.sends(outgoing, []string{"1:s:2"})
	s.streamAnswer(1_040*ms, outgoing, &StreamReply{Granted: []StreamGrant{{0, given("", 99, 8)}, {1, given("", 100, 9)}}})
	s.hasCapacity(1_040*ms, "s", 100)
	s.hasCapacity(1_040*ms, "r", 10)
	s.endsAt(1_040*ms, "r", 60_000*ms)
}
