package io.leaseway.internal.session;

import static io.leaseway.internal.session.Times.MILLISECOND;
import static io.leaseway.internal.session.Times.NEVER;
import static io.leaseway.internal.session.Times.SECOND;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.leaseway.Basis;
import io.leaseway.Mode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.SplittableRandom;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/** In virtual time. */
class SessionTest {
    private static final long MS = MILLISECOND;

    /** The expiry of the lease of leased. */
    private static final long END = 60 * SECOND;

    private Session session;

    private static Session newSession(int resourcesPerRequest, long seed, String... endpoints) {
        return new Session(List.of(endpoints), Pace.DEFAULT, resourcesPerRequest, seed);
    }

    private static Wants spending(BudgetUse use) {
        return new Wants(0, 0, 0, null, use);
    }

    @Test
    void reportsOfBudgetsAreSentPromptlyIfAnAllowanceIsMissing() {
        Wants sent = spending(new BudgetUse(3, 1000, 5, 0, 9, false));
        assertTrue(spending(new BudgetUse(4, 1000, 5, 0, 9, true)).isUrgent(sent));
        assertTrue(spending(new BudgetUse(3, 1000, 5, 1, 9, true)).isUrgent(sent));
        assertTrue(spending(new BudgetUse(0, 2000, 5, 0, 9, false)).isUrgent(sent));
        assertTrue(spending(new BudgetUse(0, 1000, 6, 0, 0, false)).isUrgent(sent));
        assertTrue(sent.isUrgent(wants(0)));
        assertFalse(spending(new BudgetUse(4, 1000, 5, 0, 9, false)).isUrgent(sent));
        assertFalse(spending(new BudgetUse(3, 1000, 5, 0, 9, true)).isUrgent(sent));
        assertFalse(sent.isSame(sent), "no renewal stands for a report");
    }

    @Test
    void anotherIncarnationOfABudgetHasNoLeaseAndDropsEarlierAnswers() {
        session = newSession(1000, 7, "a:1");
        Wants first = spending(new BudgetUse(0, 0, 5, 0, 0, false));
        session.want(0, "r", first, Mode.PESSIMISTIC);
        answer(10 * MS, poll(0).number(), given("r", 40, 1));
        session.hint(200 * MS, "r");
        long late = poll(200 * MS).number();
        session.release("r", new BudgetUse(30, 1000, 5, 0, 1, false));
        session.want(210 * MS, "r", spending(new BudgetUse(0, 0, 6, 0, 0, false)), Mode.PESSIMISTIC);
        assertNull(session.lease(210 * MS, "r"), "that lease was given to another incarnation");
        answer(220 * MS, late, given("r", 50, 2));
        assertNull(session.lease(220 * MS, "r"));
        Request again = poll(400 * MS);
        names(again, 0, 0);
        assertEquals(6, again.asks().get(0).demand().spent().incarnation());
        answer(410 * MS, again.number(), given("r", 60, 3));
        assertEquals(3, token(410 * MS));
        // One that starts over asks at once, and keeps no answer to what it was before.
        session.hint(600 * MS, "r");
        late = poll(600 * MS).number();
        assertTrue(session.want(610 * MS, "r", spending(new BudgetUse(0, 1000, 7, 0, 0, false)), Mode.PESSIMISTIC));
        answer(620 * MS, late, given("r", 70, 4));
        assertEquals(3, token(620 * MS));
        again = poll(800 * MS);
        answer(810 * MS, again.number(), given("r", 80, 5));
        var last = new BudgetUse(12, 1000, 7, 0, 5, false);
        session.release("r", last);
        assertEquals(List.of(new Release("r", 5, last)), poll(1000 * MS).releases());
    }

    private static Wants wants(double amount) {
        return new Wants(amount);
    }

    /** A lease of a minute, with a refresh interval of five seconds and a safe capacity of 1.5. */
    static Given given(String name, double capacity, long token) {
        return given(name, capacity, token, 60 * SECOND, 5 * SECOND, 1.5);
    }

    static Given given(String name, double capacity, long token, long length, long refresh, Double safe) {
        return new Given(name, length, refresh, token, new Lease.Wire(60, 5, capacity), safe, null);
    }

    private Request poll(long at) {
        Request outgoing = session.poll(at);
        assertNotNull(outgoing, "no request is due at " + at);
        return outgoing;
    }

    private void pollsNothing(long at) {
        assertNull(session.poll(at));
    }

    private void answer(long at, long number, Given... leases) {
        assertTrue(session.answered(at, number, List.of(leases)), "the answer does not count");
    }

    private double capacity(long at, String name) {
        return session.usable(at, name).capacity();
    }

    /** Checks the tokens of the live and of the expired lease that a request names; 0 for none. */
    private static void names(Request outgoing, long has, long had) {
        Ask ask = outgoing.asks().get(0);
        assertEquals(has, ask.has() == null ? 0 : ask.has().token());
        assertEquals(had, ask.had() == null ? 0 : ask.had().token());
    }

    private long token(long at) {
        Lease lease = session.lease(at, "r");
        return lease == null ? 0 : lease.token();
    }

    /** Starts a session that has asked for 100 of r. Returns the number of that request. */
    private long ask() {
        session = newSession(1000, 7, "a:1");
        session.want(0, "r", wants(100), Mode.SAFE);
        return poll(0).number();
    }

    /** Starts a session that received a lease of 40 at 10 ms, for a request sent at time 0. */
    private void lease() {
        answer(10 * MS, ask(), given("r", 40, 1));
    }

    /** Starts a session with that lease that has sent another request. Returns the number of that request. */
    private long refresh(long at) {
        lease();
        session.hint(at, "r");
        Request outgoing = poll(at);
        names(outgoing, 1, 0);
        return outgoing.number();
    }

    // When requests are sent.

    @Test
    void aNewResourceIsAskedForAtOnceAndRefreshedAfterItsInterval() {
        lease();
        pollsNothing(10 * MS);
        long wake = session.wake(10 * MS);
        assertTrue(wake >= 4_500 * MS && wake <= 5_010 * MS, "refreshed at " + wake);
        pollsNothing(wake - 1);
        Request refresh = poll(wake);
        names(refresh, 1, 0);
        assertEquals(wake + 3 * SECOND, refresh.deadline());
        assertEquals(refresh.deadline(), session.wake(wake));
    }

    @Test
    void oneRequestAsksForAllResourcesWhenTheFirstIsDue() {
        session = newSession(1000, 7, "a:1");
        for (String name : List.of("c", "a", "b")) {
            session.want(0, name, wants(1), Mode.SAFE);
        }
        Request first = poll(0);
        answer(
                MS,
                first.number(),
                given("a", 1, 1, END, 50 * SECOND, null),
                given("b", 1, 2),
                given("c", 1, 3, END, 50 * SECOND, null));
        long wake = session.wake(MS);
        assertTrue(wake <= 5_001 * MS, "the shortest interval counts, not " + wake);
        assertEquals(3, first.asks().size());
        assertEquals(3, poll(wake).asks().size());
    }

    @Test
    void theResourcesThatWaitedLongestGoIntoTheRequestFirst() {
        session = newSession(1, 7, "a:1");
        List<String> names = List.of("z", "m", "a");
        for (int i = 0; i < 3; i++) {
            session.want(i * MS, names.get(i), wants(1), Mode.SAFE);
        }
        List<String> order = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            Request outgoing = poll(3 * MS);
            String name = outgoing.asks().get(0).id();
            order.add(name);
            answer(3 * MS, outgoing.number(), given(name, 1, 1));
        }
        assertEquals(names, order);
    }

    @Test
    void aResourceLeftOutOfAnAnswerKeepsItsLeaseAndInterval() {
        lease();
        long again = session.wake(10 * MS);
        answer(again, poll(again).number());
        assertEquals(40, capacity(again, "r"));
        long next = session.wake(again) - again;
        assertTrue(next >= 4 * SECOND && next <= 5 * SECOND);
    }

    @Test
    void aRefusedResourceIsAskedForAgainAfterTheMinimumInterval() {
        answer(10 * MS, ask());
        assertEquals(1_010 * MS, session.wake(10 * MS));
    }

    @Test
    void aChangeOfDemandByMoreThanATenthIsSentAtOnce() {
        lease();
        session.want(SECOND, "r", wants(109), Mode.SAFE);
        pollsNothing(SECOND);
        session.want(SECOND, "r", wants(111), Mode.SAFE);
        assertEquals(111, poll(SECOND).asks().get(0).demand().amount());
        var asked = new Wants(10, 0, 5, null);
        assertFalse(new Wants(11, 0, 5, null).isUrgent(asked));
        assertFalse(new Wants(9, 0, 5, null).isUrgent(asked));
        assertTrue(new Wants(11.1, 0, 5, null).isUrgent(asked));
        assertTrue(new Wants(8.9, 0, 5, null).isUrgent(asked));
        assertTrue(new Wants(10, 0, 4, null).isUrgent(asked));
        assertTrue(new Wants(10, 1, 5, null).isUrgent(asked));
    }

    @Test
    void aHintOrNewDemandDuringARequestIsFollowedAfterItsAnswer() {
        long number = refresh(SECOND);
        session.hint(1_005 * MS, "r");
        session.hint(1_005 * MS, "unknown");
        pollsNothing(1_005 * MS);
        answer(1_010 * MS, number, given("r", 40, 2));
        assertEquals(1_100 * MS, session.wake(1_010 * MS));
        Request hinted = poll(1_100 * MS);
        session.want(1_110 * MS, "r", wants(90_000), Mode.SAFE);
        answer(1_300 * MS, hinted.number(), given("r", 10, 1));
        assertEquals(90_000, poll(1_300 * MS).asks().get(0).demand().amount());
    }

    @Test
    void aShrunkLeaseIsConfirmedAfter100MsIfItHasAToken() {
        long number = refresh(SECOND);
        answer(1_010 * MS, number, given("r", 20, 2));
        assertEquals(1_110 * MS, session.wake(1_010 * MS));
        Request confirm = poll(1_110 * MS);
        names(confirm, 2, 0);
        answer(1_120 * MS, confirm.number());
        assertTrue(session.wake(1_120 * MS) > 5 * SECOND, "it confirms once");
        number = refresh(SECOND);
        answer(1_010 * MS, number, given("r", 20, 0));
        assertTrue(session.wake(1_010 * MS) > 5 * SECOND, "there is nothing to name");
    }

    @Test
    void aPostponedResourceIsNotAskedForEarlier() {
        lease();
        Request second = poll(6 * SECOND);
        session.postpone("r", 30 * SECOND);
        answer(6_010 * MS, second.number(), given("r", 40, 2));
        assertFalse(session.isDue(30 * SECOND - 1));
        assertTrue(session.isDue(30 * SECOND));
        session.want(20 * SECOND, "s", wants(1), Mode.SAFE);
        assertEquals(
                List.of("s"), poll(20 * SECOND).asks().stream().map(Ask::id).toList());
    }

    // Where requests go, and what follows a failure.

    @Test
    void failuresAreFollowedByGrowingPausesAndTheNextEndpoint() {
        session = newSession(1000, 7, "a:1", "b:1");
        session.want(0, "r", wants(1), Mode.SAFE);
        long now = 0;
        List<Long> pauses = new ArrayList<>();
        String last = "";
        for (int n = 0; n < 14; n++) {
            Request outgoing = poll(now);
            assertNotEquals(last, outgoing.target());
            last = outgoing.target();
            session.failed(now, outgoing.number());
            pollsNothing(now);
            pauses.add(session.wake(now) - now);
            now = session.wake(now);
        }
        assertTrue(pauses.get(0) >= 50 * MS && pauses.get(0) <= 100 * MS, pauses.toString());
        assertTrue(pauses.get(13) >= 1_250 * MS && pauses.get(13) <= 2_500 * MS, pauses.toString());
        answer(now, poll(now).number(), given("r", 1, 1));
        session.hint(now + SECOND, "r");
        session.failed(now + SECOND, poll(now + SECOND).number());
        assertTrue(session.wake(now + SECOND) - now <= 1_100 * MS, "an answer makes the next pause short");
    }

    @Test
    void redirectsAreFollowedAtOnceButAtMostFiveInARow() {
        session = newSession(1000, 7, "a:1");
        session.want(0, "r", wants(1), Mode.SAFE);
        int targets = 0;
        for (Request outgoing = session.poll(0); outgoing != null; outgoing = session.poll(0)) {
            targets++;
            session.redirected(0, outgoing.number(), outgoing.target().equals("b:1") ? "a:1" : "b:1");
        }
        assertEquals(6, targets);
        assertEquals(1, session.failures());
        assertTrue(session.wake(0) >= 50 * MS);
        // A master that moves now and then is followed each time.
        lease();
        for (int n = 1; n < 20; n++) {
            long at = n * SECOND;
            session.hint(at, "r");
            session.redirected(at, poll(at).number(), n % 2 == 0 ? "b:1" : "c:1");
            answer(at, poll(at).number(), given("r", 40, n));
        }
        assertEquals(0, session.failures());
    }

    @Test
    void aServerThatNamesItselfOrNoMasterIsAFailure() {
        for (String master : new String[] {"a:1", null}) {
            long number = ask();
            session.redirected(0, number, master);
            pollsNothing(0);
            assertEquals(1, session.failures());
        }
    }

    @Test
    void serversWithoutAMasterAreAskedAgainWithinASecond() {
        session = newSession(1000, 7, "a:1");
        session.want(0, "r", wants(1), Mode.SAFE);
        long now = 0;
        for (int n = 0; n < 20; n++) {
            session.redirected(now, poll(now).number(), null);
            assertTrue(session.wake(now) - now <= SECOND);
            now = session.wake(now);
        }
        session.failed(now, poll(now).number());
        assertTrue(session.wake(now) - now > SECOND, "a failed server waits longer");
    }

    @Test
    void sessionsBeginWithDifferentEndpoints() {
        long first = IntStream.range(0, 100)
                .filter(seed -> newSession(1, seed, "a:1", "b:1").target().equals("a:1"))
                .count();
        assertTrue(first > 20 && first < 80, first + " of 100");
    }

    @Test
    void learntPeersAreTriedAfterTheConfiguredEndpointsAndReplaced() {
        var route = new Route(List.of("a:1"), 0);
        route.learn(List.of("b:1", "a:1", "c:1", "b:1"));
        assertEquals(List.of("b:1", "c:1", "a:1", "b:1"), tries(route, 4));
        route.learn(List.of("d:1"));
        assertEquals(List.of("a:1", "d:1", "a:1"), tries(route, 3));
        route.learn(IntStream.range(0, 100_000).mapToObj(n -> "p" + n + ":1").toList());
        assertEquals(1 + Route.MAX_LEARNT_PEERS, route.endpoints().size());
    }

    private static List<String> tries(Route route, int times) {
        List<String> targets = new ArrayList<>();
        for (int n = 0; n < times; n++) {
            route.failed();
            targets.add(route.target());
        }
        return targets;
    }

    // What may be used.

    @Test
    void aLeaseStartsWhenItsRequestWasSent() {
        session = newSession(1000, 7, "a:1");
        session.want(0, "r", wants(100), Mode.SAFE);
        answer(2_000 * MS, poll(100 * MS).number(), given("r", 40, 1));
        assertEquals(40, capacity(60_100 * MS - 1, "r"));
        assertEquals(1.5, capacity(60_100 * MS, "r"));
        assertEquals(new Usable(40, Basis.LEASED, 60_100 * MS, 1.5), session.usable(3_000 * MS, "r"));
    }

    @Test
    void theModeDecidesAfterTheExpiryAndAfterAFailure() {
        Map<Mode, Double> expired = Map.of(Mode.SAFE, 1.5, Mode.PESSIMISTIC, 0.0, Mode.OPTIMISTIC, 100.0);
        Map<Mode, Double> failed = Map.of(Mode.SAFE, 0.0, Mode.PESSIMISTIC, 0.0, Mode.OPTIMISTIC, 100.0);
        for (Mode mode : Mode.values()) {
            lease();
            session.want(20 * MS, "r", wants(100), mode);
            assertEquals(40, capacity(END - 1, "r"));
            assertEquals(expired.get(mode), capacity(END, "r"));

            long number = ask();
            session.want(0, "r", wants(100), mode);
            assertEquals(Usable.UNKNOWN, session.usable(MS, "r"));
            session.failed(2 * MS, number);
            assertEquals(Basis.FALLBACK, session.usable(2 * MS, "r").basis());
            assertEquals(failed.get(mode), capacity(2 * MS, "r"));
        }
    }

    @Test
    void negativeGrantsOpenNothingAndNegativeSafeCapacitiesAreUnlimited() {
        answer(MS, ask(), given("r", -40, 1, END, SECOND, -1.0));
        assertEquals(0, capacity(MS, "r"));
        assertEquals(Double.POSITIVE_INFINITY, capacity(END, "r"));
        assertEquals(0, Lease.granted(Double.NaN));
        assertEquals(0, Lease.safe(Double.NaN));
    }

    @Test
    void theSafeCapacityLastReceivedIsKept() {
        answer(SECOND, refresh(SECOND), given("r", 40, 2, END, SECOND, null));
        assertEquals(1.5, capacity(61 * SECOND, "r"));
    }

    @Test
    void changesAreReportedOnceAndAnExpiryWakes() {
        lease();
        assertEquals(List.of(40.0), changes(10 * MS));
        assertEquals(List.of(), changes(11 * MS));
        Request refresh = poll(END - SECOND);
        assertEquals(END, session.wake(END - SECOND));
        assertEquals(List.of(1.5), changes(END));
        session.failed(END + MS, refresh.number());
        assertEquals(List.of(), changes(END + MS));
    }

    private List<Double> changes(long at) {
        List<Double> reported = new ArrayList<>();
        session.changes(at, (name, usable) -> reported.add(usable.capacity()));
        return reported;
    }

    // Which answers count.

    @Test
    void onlyTheAnswerToTheLatestRequestCounts() {
        long first = ask();
        session.want(MS, "s", wants(1), Mode.SAFE);
        pollsNothing(3 * SECOND);
        List<Given> lease = List.of(given("r", 40, 1));
        assertFalse(session.answered(3_001 * MS, first, lease), "the request was abandoned");
        Request second = poll(3_100 * MS);
        assertFalse(session.answered(3_101 * MS, first, lease));
        assertFalse(session.redirected(3_101 * MS, first, "x:1"));
        assertFalse(session.failed(3_101 * MS, first));
        assertEquals(0, token(3_101 * MS));
        assertEquals(second.number(), session.inFlight());
        assertEquals(1, session.failures());
        assertEquals("a:1", session.target());
    }

    @Test
    void leasesThatTheRequestDidNotAskForAreIgnored() {
        long number = ask();
        session.want(MS, "s", wants(1), Mode.SAFE);
        answer(2 * MS, number, given("s", 40, 1), given("x", 40, 1));
        assertNull(session.lease(2 * MS, "s"));
        assertNull(session.lease(2 * MS, "x"));
    }

    @Test
    void anAnswerCountsOnlyBeforeTheExpiryOfTheLeaseThatItsRequestNamed() {
        for (long at : new long[] {END - 1, END, END + SECOND}) {
            answer(at, refresh(END - 500 * MS), given("r", 50, 2));
            assertEquals(at < END ? 2 : 0, token(at));
        }
    }

    @Test
    void aDroppedAnswerIsFollowedByARequestThatNamesTheExpiredLease() {
        for (long sent : new long[] {END - 2 * SECOND, END - 20 * MS}) {
            answer(END, refresh(sent), given("r", 50, 2));
            long again = Math.max(END, sent + 100 * MS);
            assertEquals(again, session.wake(END));
            Request outgoing = poll(again);
            names(outgoing, 0, 1);
            // It named no live lease, so its answer counts at any time before the deadline.
            long late = again + 2_999 * MS;
            answer(late, outgoing.number(), given("r", 60, 3));
            assertEquals(60, capacity(late, "r"));
        }
    }

    @Test
    void otherLeasesOfALateAnswerCount() {
        lease();
        session.want(SECOND, "s", wants(1), Mode.SAFE);
        answer(1_001 * MS, poll(SECOND).number(), given("s", 1, 2));
        answer(END, poll(END - 500 * MS).number(), given("r", 50, 3), given("s", 2, 4));
        assertEquals(1.5, capacity(END, "r"));
        assertEquals(2, capacity(END, "s"));
    }

    @Test
    void answersThatAlwaysComeTooLateCauseNoRequestStorm() {
        session = newSession(1000, 7, "a:1");
        session.want(0, "r", wants(100), Mode.SAFE);
        long now = 0;
        int sent = 0;
        int counted = 0;
        while (now < 100 * SECOND) {
            Request outgoing = session.poll(now);
            if (outgoing != null) {
                sent++;
                // It refreshes when a third of three seconds is left, which is less than an answer takes.
                now += 1_200 * MS;
                answer(now, outgoing.number(), given("r", 1, sent, 3 * SECOND, 5 * SECOND, null));
                counted += session.lease(now, "r") == null ? 0 : 1;
            }
            now = session.wake(now);
        }
        // Every second answer counts: that to the request that follows a dropped answer at once.
        assertTrue(sent >= 40 && sent <= 60 && counted >= sent / 2, counted + " of " + sent);
    }

    // Releases.

    @Test
    void afterAReleaseNoAnswerToAnEarlierRequestCounts() {
        long asked = refresh(SECOND);
        session.release("r");
        pollsNothing(4 * SECOND);
        long wake = session.wake(4 * SECOND);
        Request release = poll(wake);
        assertEquals(List.of(new Release("r", 1, null)), release.releases());
        List<Given> late = List.of(given("r", 50, 2));
        assertFalse(session.answered(wake, asked, late), "it is not the answer to the release");
        session.want(wake, "r", wants(100), Mode.SAFE);
        assertFalse(session.answered(wake, asked, late), "during the release");
        answer(wake, release.number());
        assertFalse(session.answered(wake, asked, late), "after the release");
        long soon = session.wake(wake);
        Request anew = poll(soon);
        names(anew, 0, 0);
        assertFalse(session.answered(soon, asked, late), "during the next request");
        assertEquals(0, token(soon));
        answer(soon, anew.number(), given("r", 60, 3));
        assertEquals(60, capacity(soon, "r"));
    }

    @Test
    void aReleaseWaitsForTheRequestInFlightAndNamesTheNewestLease() {
        long number = refresh(SECOND);
        session.want(SECOND, "s", wants(1), Mode.SAFE);
        session.release("r");
        pollsNothing(1_001 * MS);
        answer(1_002 * MS, number, given("r", 50, 2));
        Request release = poll(1_002 * MS);
        assertEquals(List.of(new Release("r", 2, null)), release.releases());
        answer(1_003 * MS, release.number());
        assertEquals("s", poll(1_003 * MS).asks().get(0).id());
    }

    /** An unnamed release that arrives late could free a newer lease. */
    @Test
    void withoutALiveLeaseNothingIsReleased() {
        session = newSession(1000, 7, "a:1");
        session.want(0, "r", wants(1), Mode.SAFE);
        session.release("r");
        pollsNothing(0);
        assertTrue(session.isIdle());

        long unanswered = ask();
        session.release("r");
        session.failed(MS, unanswered);
        pollsNothing(session.wake(MS));
        assertTrue(session.isIdle());

        long late = refresh(END - 500 * MS);
        session.release("r");
        answer(END, late, given("r", 50, 2));
        pollsNothing(END);
        assertEquals(NEVER, session.wake(END));
        assertTrue(session.isIdle());
    }

    @Test
    void aResourceWantedAgainBeforeItsReleaseKeepsItsLeaseAndIsReportedAgain() {
        lease();
        changes(10 * MS);
        session.release("r");
        session.want(SECOND, "r", wants(100), Mode.SAFE);
        assertEquals(List.of(40.0), changes(SECOND));
        names(poll(SECOND), 1, 0);
    }

    /** The server may have processed the release. */
    @Test
    void aResourceWantedAgainAfterAReleaseWasSentStartsWithoutALease() {
        for (boolean hasFailed : new boolean[] {false, true}) {
            lease();
            session.release("r");
            Request release = poll(SECOND);
            if (hasFailed) {
                session.failed(1_001 * MS, release.number());
            }
            session.want(1_600 * MS, "r", wants(100), Mode.SAFE);
            assertEquals(0, capacity(1_600 * MS, "r"));
            session.answered(1_610 * MS, release.number(), List.of());
            names(poll(session.wake(1_610 * MS)), 0, 0);
        }
    }

    @Test
    void failingReleasesDoNotPreventRefreshes() {
        lease();
        session.want(20 * MS, "s", wants(1), Mode.SAFE);
        answer(20 * MS, poll(20 * MS).number(), given("s", 1, 2));
        session.release("r");
        long now = 20 * MS;
        int refreshes = 0;
        int releases = 0;
        while (now < 50 * SECOND) {
            Request outgoing = session.poll(now);
            if (outgoing != null && !outgoing.asks().isEmpty()) {
                refreshes++;
                answer(now, outgoing.number(), given("s", 1, 2 + refreshes));
            } else if (outgoing != null) {
                releases++;
                session.failed(now, outgoing.number());
            }
            now = session.wake(now);
            assertEquals(1, capacity(now, "s"));
        }
        assertTrue(refreshes >= 6 && releases >= 10 && releases <= 100, refreshes + " and " + releases);
    }

    @Test
    void releasingEverythingEndsAPauseAndIsBoundedPerRequest() {
        session = newSession(2, 7, "a:1");
        for (String name : List.of("a", "b", "c")) {
            session.want(0, name, wants(1), Mode.SAFE);
        }
        for (int n = 0; n < 2; n++) {
            Request outgoing = poll(0);
            answer(
                    0,
                    outgoing.number(),
                    outgoing.asks().stream().map(ask -> given(ask.id(), 1, 1)).toArray(Given[]::new));
        }
        session.hint(SECOND, "a");
        session.failed(1_001 * MS, poll(SECOND).number());
        pollsNothing(1_002 * MS);
        List.of("a", "b", "c").forEach(session::release);
        pollsNothing(1_002 * MS);
        session.endBackOff();
        Request first = poll(1_002 * MS);
        assertEquals(List.of(new Release("a", 1, null), new Release("b", 1, null)), first.releases());
        answer(1_002 * MS, first.number());
        assertEquals(List.of(new Release("c", 1, null)), poll(1_002 * MS).releases());
    }

    // Outages.

    /**
     * A server may recover at any time. The longest time without a request to it bounds the time until the session
     * notices.
     */
    @Test
    void aRecoveredServerIsAskedWithinOneRefreshInterval() {
        for (String[] endpoints : new String[][] {{"a:1"}, {"a:1", "b:1"}, {"a:1", "b:1", "c:1"}}) {
            for (int seed = 0; seed < 20; seed++) {
                session = newSession(10, seed, endpoints);
                session.want(0, "r", wants(100), Mode.SAFE);
                answer(MS, poll(0).number(), given("r", 40, 1, END, SECOND, null));
                Map<String, Long> last = new HashMap<>();
                for (long now = session.wake(0); now < 600 * SECOND; now = Math.max(now, session.wake(now))) {
                    Request outgoing = session.poll(now);
                    if (outgoing == null) {
                        continue;
                    }
                    Long before = last.put(outgoing.target(), now);
                    assertTrue(before == null || now - before <= SECOND);
                    session.failed(now, outgoing.number());
                }
            }
        }
    }

    @Test
    void zeroSettingsDoNotCauseARequestStorm() {
        var random = new SplittableRandom(1);
        var pace = new Pace(0, 0, 0, 0, 0, 0);
        for (int failures = 1; failures < 100; failures++) {
            assertTrue(pace.backoff(failures, 0, 0, random) >= 50 * MS);
        }
        for (long left : new long[] {0, MS, 60 * SECOND}) {
            assertTrue(pace.refresh(0, left, random) >= 90 * MS);
        }
    }

    /** Any sequence of calls keeps the rules that a server relies on. */
    @Test
    void anyStepsKeepTheRules() {
        int streamed = 0;
        for (int seed = 0; seed < 300; seed++) {
            var steps = new RandomSteps(seed);
            steps.run();
            streamed += steps.isStreamed ? 1 : 0;
        }
        assertTrue(streamed > 100, streamed + " of 300 used a stream");
    }

    private static final class RandomSteps {
        private static final List<String> NAMES = List.of("p", "q", "r");
        private final SplittableRandom random;
        private final Session session;
        private final Map<String, Long> ends = new HashMap<>();
        private long now;
        private long sent;
        private Request flight;
        /** A message on a stream was answered. */
        private boolean isStreamed;

        RandomSteps(int seed) {
            random = new SplittableRandom(seed + 1000);
            session = newSession(2, seed, "a:1", "b:1");
            if (seed % 2 == 0) {
                session.offerStream("a:1", 2);
                session.offerStream("b:1", 2);
            }
        }

        void run() {
            for (int n = 0; n < 400; n++) {
                now += random.nextLong(4 * SECOND);
                step(NAMES.get(random.nextInt(3)));
                Request outgoing = session.poll(now);
                if (outgoing != null) {
                    check(outgoing);
                    flight = outgoing;
                    sent = now;
                }
                for (String name : NAMES) {
                    Lease lease = session.lease(now, name);
                    assertTrue(lease == null || !ends.containsKey(name) || lease.end() <= ends.get(name));
                }
                assertTrue(session.inFlight() != 0 || session.wake(now) != NEVER || session.isIdle(), "it never wakes");
            }
        }

        private void check(Request outgoing) {
            long parts = Stream.of(
                            !outgoing.asks().isEmpty(), !outgoing.releases().isEmpty(), outgoing.stream() != null)
                    .filter(part -> part)
                    .count();
            assertEquals(1, parts);
            for (String name : renewed(outgoing)) {
                assertNotNull(session.lease(now, name), "a lease that has expired is renewed");
            }
            for (Ask ask : outgoing.stated()) {
                assertTrue(ask.has() == null || ask.has().isLive(now));
                assertTrue(ask.had() == null || !ask.had().isLive(now));
            }
        }

        private List<String> renewed(Request outgoing) {
            return outgoing.stream() == null
                    ? List.of()
                    : outgoing.stream().renewed().stream()
                            .flatMap(range -> IntStream.range(range.first(), range.first() + range.count())
                                    .mapToObj(session::streamId))
                            .toList();
        }

        private void step(String name) {
            switch (random.nextInt(8)) {
                case 0 -> {
                    session.release(name);
                    ends.remove(name);
                }
                case 1 -> session.hint(now, name);
                case 2, 3 -> session.want(now, name, wants(random.nextDouble() * 100), Mode.SAFE);
                default -> {
                    if (flight != null) {
                        report();
                        flight = null;
                    }
                }
            }
        }

        private void reportStream(StreamRequest message) {
            List<StreamReply.Grant> grants = new ArrayList<>();
            List<Integer> leftOut = new ArrayList<>();
            for (StreamRequest.Stated stated : message.stated()) {
                if (random.nextInt(4) == 0) {
                    leftOut.add(stated.index());
                } else {
                    Given lease = given("", random.nextDouble() * 100, random.nextInt(1000));
                    grants.add(new StreamReply.Grant(stated.index(), lease));
                }
            }
            List<String> renewed = renewed(flight);
            var reply = new StreamReply(0, grants, leftOut, random.nextInt(8) == 0);
            if (session.streamAnswered(now, flight.number(), reply) && !reply.isRestart()) {
                flight.stated().forEach(ask -> ends.put(ask.id(), sent + 60 * SECOND));
                renewed.forEach(name -> ends.put(name, sent + 60 * SECOND));
                isStreamed = true;
            }
        }

        private void report() {
            switch (random.nextInt(4)) {
                case 0 -> session.failed(now, flight.number());
                case 1 -> session.redirected(now, flight.number(), "b:1");
                default -> {
                    if (flight.stream() != null) {
                        reportStream(flight.stream());
                        return;
                    }
                    List<Given> leases = flight.asks().stream()
                            .map(ask -> given(ask.id(), random.nextDouble() * 100, random.nextInt(1000)))
                            .toList();
                    if (session.answered(now, flight.number(), leases)) {
                        flight.asks().forEach(ask -> ends.put(ask.id(), sent + 60 * SECOND));
                    }
                }
            }
        }
    }
}
