package io.leaseway.internal.session;

import static io.leaseway.internal.session.SessionTest.given;
import static io.leaseway.internal.session.Times.MILLISECOND;
import static io.leaseway.internal.session.Times.SECOND;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.leaseway.Mode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/** Renewal by a stream, in virtual time. The rules are those of src/client/session/tests/streams.rs. */
class StreamTest {
    private static final long MS = MILLISECOND;

    private Session session;

    private void start(String... endpoints) {
        session = new Session(List.of(endpoints), Pace.DEFAULT, 1000, 7);
    }

    /** Starts a session with one resource and one server, which accepts streams from a number of resources on. */
    private void want(int from) {
        start("a:1");
        session.offerStream("a:1", from);
        session.want(0, "r", new Wants(10), Mode.SAFE);
    }

    /**
     * Starts a session that renews resources by a stream, each with a lease of 10 and the token index + 1, given at 10
     * ms.
     */
    private void streaming(String... names) {
        start("a:1", "b:1");
        session.offerStream(session.target(), 1);
        for (String name : names) {
            session.want(0, name, new Wants(10), Mode.SAFE);
        }
        Request first = message(0);
        assertEquals(1, first.stream().sequence());
        assertEquals(names.length, first.stream().stated().size());
        assertEquals(List.of(), first.stream().renewed());
        var granted = first.stream().stated().stream()
                .map(stated -> new StreamReply.Grant(stated.index(), given("", 10, stated.index() + 1)));
        answer(10 * MS, first, new StreamReply(0, granted.toList(), List.of(), false));
    }

    private Request poll(long at) {
        Request outgoing = session.poll(at);
        assertNotNull(outgoing, "no request is due at " + at);
        return outgoing;
    }

    private Request message(long at) {
        Request outgoing = poll(at);
        assertNotNull(outgoing.stream(), "it is not on a stream");
        assertTrue(outgoing.asks().isEmpty() && outgoing.releases().isEmpty());
        return outgoing;
    }

    private void answer(long at, Request outgoing, StreamReply reply) {
        assertTrue(session.streamAnswered(at, outgoing.number(), reply), "the answer does not count");
    }

    private static StreamReply nothing() {
        return new StreamReply(0, List.of(), List.of(), false);
    }

    private static StreamReply granted(int index, double capacity, long token) {
        var grant = new StreamReply.Grant(index, given("", capacity, token));
        return new StreamReply(0, List.of(grant), List.of(), false);
    }

    private static StreamReply leftOut(Integer... indexes) {
        return new StreamReply(0, List.of(), List.of(indexes), false);
    }

    private static StreamReply restart() {
        return new StreamReply(0, List.of(), List.of(), true);
    }

    /** What a message states, as INDEX:ID:TOKEN with the token of the live lease, and renews, as FIRST+COUNT. */
    private static String sends(Request outgoing) {
        List<String> parts = new ArrayList<>();
        for (StreamRequest.Stated stated : outgoing.stream().stated()) {
            Lease has = stated.ask().has();
            parts.add(stated.index() + ":" + stated.ask().id() + ":" + (has == null ? 0 : has.token()));
        }
        for (StreamRequest.Range range : outgoing.stream().renewed()) {
            parts.add(range.first() + "+" + range.count());
        }
        return String.join(" ", parts);
    }

    private long end(long at, String name) {
        return session.lease(at, name).end();
    }

    @Test
    void aLeaseThatStaysIsRenewedByItsIndexFromWhenTheMessageWasSent() {
        streaming("r", "s", "t");
        session.changes(10 * MS, (id, usable) -> {});
        Request outgoing = message(5_000 * MS);
        assertEquals("0+3", sends(outgoing));
        assertEquals(2, outgoing.stream().sequence());
        answer(5_040 * MS, outgoing, new StreamReply(105, List.of(), List.of(), false));
        Lease lease = session.lease(5_040 * MS, "s");
        assertEquals(65 * SECOND, lease.end());
        assertEquals(2, lease.token());
        assertEquals(165, lease.wire().expiryTime());
        long wake = session.wake(5_040 * MS);
        assertTrue(wake >= 9_500 * MS && wake <= 10_040 * MS, "refreshed at " + wake);
        Map<String, Long> reported = new HashMap<>();
        session.changes(5_040 * MS, (id, usable) -> reported.put(id, usable.until()));
        assertEquals(Map.of("r", 65 * SECOND, "s", 65 * SECOND, "t", 65 * SECOND), reported);
        assertEquals("s", session.streamId(1));
        assertNull(session.streamId(3));
    }

    @Test
    void aChangedDemandIsStatedAndTheOthersAreRenewed() {
        streaming("r", "s", "t");
        session.want(4_000 * MS, "s", new Wants(10.5), Mode.SAFE);
        Request outgoing = message(5_000 * MS);
        assertEquals("1:s:2 0+1 2+1", sends(outgoing));
        answer(5_040 * MS, outgoing, granted(1, 10.5, 9));
        assertEquals(10.5, session.usable(5_040 * MS, "s").capacity());
        assertEquals(65 * SECOND, end(5_040 * MS, "r"));
        assertEquals("0+3", sends(message(10_000 * MS)), "it is renewable again");
    }

    @Test
    void anUrgentChangeDoesNotRenewTheOthers() {
        streaming("r", "s");
        session.want(1_000 * MS, "s", new Wants(100), Mode.SAFE);
        assertEquals("1:s:2", sends(message(1_000 * MS)));
    }

    @Test
    void whatIsOutstandingOrUsedIsStated() {
        streaming("r", "s", "t");
        session.want(4_000 * MS, "r", new Wants(10, 0, 12, null), Mode.SAFE);
        var usage = new Usage(0, 0, 0, new Usage.Counters(0, 0, 0));
        session.want(4_000 * MS, "t", new Wants(10, 0, 0, usage), Mode.SAFE);
        assertEquals("0:r:1 2:t:3 1+1", sends(message(5_000 * MS)));
    }

    @Test
    void aLeaseThatWasNotRequestedIsIgnored() {
        streaming("r", "s");
        session.hint(1_000 * MS, "s");
        Request outgoing = message(1_000 * MS);
        assertEquals("1+1", sends(outgoing));
        var grants = List.of(
                new StreamReply.Grant(0, given("", 99, 8)),
                new StreamReply.Grant(1, given("", 5, 9)),
                new StreamReply.Grant(2, given("", 7, 9)));
        answer(1_010 * MS, outgoing, new StreamReply(0, grants, List.of(), false));
        assertEquals(1, session.lease(1_010 * MS, "r").token());
        assertEquals(9, session.lease(1_010 * MS, "s").token());
    }

    @Test
    void aCutLeaseIsStatedAlthoughTheDemandIsTheSame() {
        streaming("r", "s");
        answer(5_040 * MS, message(5_000 * MS), granted(0, 4, 9));
        Request confirmation = message(5_140 * MS);
        assertEquals("0:r:9", sends(confirmation));
        answer(5_150 * MS, confirmation, granted(0, 4, 10));
        assertEquals("0+2", sends(message(10_000 * MS)), "it is renewable again");
    }

    @Test
    void aLeaseThatWasLeftOutStaysAndIsStatedAgain() {
        streaming("r", "s");
        answer(5_040 * MS, message(5_000 * MS), leftOut(1, 7, -1));
        assertEquals(65 * SECOND, end(5_040 * MS, "r"));
        assertEquals(60 * SECOND, end(5_040 * MS, "s"));
        assertEquals("1:s:2 0+1", sends(message(10_000 * MS)));
    }

    @Test
    void aRenewalThatIsAnsweredAfterTheEndOfTheLeaseDoesNotCount() {
        streaming("r");
        answer(60_500 * MS, message(58_000 * MS), nothing());
        assertNull(session.lease(60_500 * MS, "r"));
        Request outgoing = message(60_500 * MS);
        assertEquals("0:r:0", sends(outgoing));
        assertEquals(1, outgoing.stated().get(0).had().token());
    }

    @Test
    void afterARestartEverythingIsStatedOnAnotherStream() {
        streaming("r", "s");
        Request before = message(5_000 * MS);
        answer(5_010 * MS, before, restart());
        Request outgoing = message(5_010 * MS);
        assertEquals("0:r:1 1:s:2", sends(outgoing));
        assertTrue(outgoing.stream().stream() > before.stream().stream());
        assertEquals(1, outgoing.stream().sequence());
        assertEquals(60 * SECOND, end(5_010 * MS, "r"), "the lease is used meanwhile");
        answer(5_020 * MS, outgoing, restart());
        assertEquals(2, poll(5_020 * MS).asks().size(), "not even the first message was accepted");
    }

    @Test
    void aLostAnswerEndsTheStreamAndAnAnswerThatComesLaterDoesNotCount() {
        streaming("r");
        Request before = message(5_000 * MS);
        session.offerStream("b:1", 1);
        session.offerStream("a:1", 1);
        assertNull(session.poll(8_000 * MS));
        assertFalse(session.streamAnswered(8_001 * MS, before.number(), nothing()));
        assertEquals(60 * SECOND, end(8_001 * MS, "r"));
        Request outgoing = message(session.wake(8_001 * MS));
        assertTrue(outgoing.stream().stream() > before.stream().stream());
        assertEquals("0:r:1", sends(outgoing));
    }

    @Test
    void aRefusedStreamIsReplacedByGetCapacityAtOnceAndForTenMinutes() {
        want(1);
        assertTrue(session.streamRefused(5 * MS, message(0).number()));
        long at = 5 * MS;
        while (at < 600 * SECOND) {
            Request outgoing = poll(at);
            assertEquals(1, outgoing.asks().size(), "at " + at);
            assertEquals(0, session.failures());
            assertTrue(session.answered(at, outgoing.number(), List.of(given("r", 10, at))));
            at = session.wake(at);
        }
        assertEquals(1, message(Math.max(at, 600_005 * MS)).stream().sequence());
    }

    @Test
    void anOpeningThatIsNotAnsweredIsFollowedByGetCapacity() {
        want(1);
        message(0);
        assertNull(session.poll(3_000 * MS));
        assertEquals(1, poll(session.wake(3_000 * MS)).asks().size());
    }

    @Test
    void fewResourcesAreAskedForByGetCapacity() {
        want(2);
        assertEquals(1, poll(0).asks().size());
        assertEquals(0, session.stream());
        want(1);
        session.offerStream("a:1", 0);
        assertEquals(1, poll(0).asks().size(), "the server accepts no streams");
    }

    @Test
    void aReleasedResourceLeavesTheRenewalsAndItsIndexIsNotUsedAgain() {
        streaming("r", "s", "t");
        session.release("s");
        Request release = poll(1_000 * MS);
        assertEquals(List.of(new Release("s", 2, null)), release.releases());
        assertTrue(session.answered(1_010 * MS, release.number(), List.of()));
        session.want(1_100 * MS, "s", new Wants(10), Mode.SAFE);
        Request outgoing = message(1_200 * MS);
        assertEquals("3:s:0", sends(outgoing));
        answer(1_210 * MS, outgoing, leftOut(3));
        assertEquals("3:s:0 0+1 2+1", sends(message(5_000 * MS)));
    }

    @Test
    void aRedirectEndsTheStream() {
        streaming("r");
        assertTrue(session.redirected(5_010 * MS, message(5_000 * MS).number(), "c:1"));
        Request outgoing = poll(5_010 * MS);
        assertEquals("c:1", outgoing.target());
        assertEquals(1, outgoing.asks().get(0).has().token());
    }

    @Test
    void indexesAreSentAsRanges() {
        assertEquals(List.of(), RenewalStream.ranges(List.of()));
        assertEquals(
                List.of(new StreamRequest.Range(1, 1), new StreamRequest.Range(3, 2), new StreamRequest.Range(9, 1)),
                RenewalStream.ranges(Stream.of(1, 3, 4, 9).toList()));
    }
}
