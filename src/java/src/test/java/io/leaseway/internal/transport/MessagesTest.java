package io.leaseway.internal.transport;

import static io.leaseway.internal.session.Times.MILLISECOND;
import static io.leaseway.internal.session.Times.SECOND;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.Grpc;
import io.grpc.InsecureServerCredentials;
import io.grpc.Server;
import io.grpc.ServerServiceDefinition;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.ServerCalls;
import io.leaseway.OptionException;
import io.leaseway.internal.session.Ask;
import io.leaseway.internal.session.BudgetLease;
import io.leaseway.internal.session.BudgetUse;
import io.leaseway.internal.session.Given;
import io.leaseway.internal.session.Pool;
import io.leaseway.internal.session.Release;
import io.leaseway.internal.session.StreamRequest;
import io.leaseway.internal.session.Usage;
import io.leaseway.internal.session.Wants;
import io.leaseway.internal.wire.Entry;
import io.leaseway.internal.wire.GetCapacityRequest;
import io.leaseway.internal.wire.GetCapacityResponse;
import io.leaseway.internal.wire.Grant;
import io.leaseway.internal.wire.Hint;
import io.leaseway.internal.wire.Lease;
import io.leaseway.internal.wire.Mastership;
import io.leaseway.internal.wire.PoolState;
import io.leaseway.internal.wire.Problem;
import io.leaseway.internal.wire.Range;
import io.leaseway.internal.wire.RenewRequest;
import io.leaseway.internal.wire.RenewResponse;
import io.leaseway.internal.wire.ResourceRequest;
import io.leaseway.internal.wire.ResourceResponse;
import io.leaseway.internal.wire.Spent;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class MessagesTest {
    private static final long MAX_LEASE = 10L * 365 * 86_400 * SECOND;

    private static Lease.Builder granted() {
        return Lease.newBuilder()
                .setExpiryTime(1000)
                .setRefreshInterval(5)
                .setCapacity(7.5)
                .setToken(9);
    }

    private static ResourceResponse response(String id, Lease.Builder gets) {
        var response = ResourceResponse.newBuilder().setResourceId(id);
        return gets == null ? response.build() : response.setGets(gets).build();
    }

    private static Answer read(ResourceResponse response, Instant sent) {
        return Answer.of(
                1, GetCapacityResponse.newBuilder().addResponse(response).build(), sent);
    }

    private static long length(Lease.Builder lease, Instant sent) {
        return read(response("r", lease), sent).given().get(0).length();
    }

    @Test
    void aLeaseLengthCountsFromWhenItsRequestWasSent() {
        Instant sent = Instant.ofEpochMilli(940_250);
        assertEquals(60 * SECOND, length(granted().setRemainingMs(60_000), sent));
        assertEquals(59_750 * MILLISECOND, length(granted(), sent));
        assertEquals(0, length(granted(), Instant.ofEpochSecond(2000)));
        var far = granted().setExpiryTime(Long.MAX_VALUE).setRefreshInterval(Long.MAX_VALUE);
        assertEquals(MAX_LEASE, length(far, Instant.EPOCH));
        assertEquals(0, length(granted().setRemainingMs(Long.MIN_VALUE), sent));
        assertEquals(0, length(granted().setExpiryTime(Long.MIN_VALUE), sent));
    }

    @Test
    void malformedLeasesAreDroppedAndNamed() {
        Lease.Builder[] malformed = {
            granted().setCapacity(Double.NaN),
            granted().setCapacity(Double.POSITIVE_INFINITY),
            granted().clearExpiryTime(),
            null
        };
        for (Lease.Builder lease : malformed) {
            var answer = Answer.of(
                    2,
                    GetCapacityResponse.newBuilder()
                            .addResponse(response("r", lease))
                            .addResponse(response("s", granted()))
                            .build(),
                    Instant.now());
            assertEquals(1, answer.given().size());
            assertEquals(List.of("r"), answer.malformed());
        }
    }

    @Test
    void aRequestEchoesTheLeaseAndReportsDemandAndUsage() {
        var lease = new io.leaseway.internal.session.Lease(
                7.5, 0, 0, 9, new io.leaseway.internal.session.Lease.Wire(1000, 5, 7.5), null);
        var usage = new Usage(0.25, 7, 4 * SECOND, null);
        GetCapacityRequest request = Messages.askRequest(
                "c",
                List.of(
                        new Ask("r", new Wants(3, 2, 7.5, null), lease, null),
                        new Ask("s", new Wants(0, 0, 9.5, null), lease, null),
                        new Ask("t", new Wants(0, 0, 7, usage), null, lease)));
        var empty = ResourceRequest.newBuilder().setPriority(0).setWants(0);
        var expected = GetCapacityRequest.newBuilder()
                .setClientId("c")
                .setDropsLate(true)
                .addResource(empty.clone()
                        .setResourceId("r")
                        .setPriority(2)
                        .setWants(3)
                        .setHas(granted()))
                .addResource(empty.clone().setResourceId("s").setHas(granted()).setOutstanding(2))
                .addResource(empty.clone()
                        .setResourceId("t")
                        .setHad(granted())
                        .setOutstanding(7)
                        .setUsage(io.leaseway.internal.wire.Usage.newBuilder()
                                .setRechargingFraction(0.25)
                                .setRequestCost(7)
                                .setIntervalMs(4000)));
        assertEquals(expected.build(), request);
        var released = Messages.releaseRequest("c", List.of(new Release("a", 7, null), new Release("b", 0, null)));
        assertEquals(List.of(7L, 0L), released.getTokenList());
        assertEquals(List.of("a", "b"), released.getResourceIdList());
        assertEquals(0, released.getSpentCount());
    }

    @Test
    void budgetsNameTheLeaseOfTheirAllowanceAndWhatWasSpent() {
        var lease = new io.leaseway.internal.session.Lease(
                7.5, 0, 0, 9, new io.leaseway.internal.session.Lease.Wire(1000, 5, 7.5), null);
        var plain = new BudgetUse(3, 3600, -5, 0, 9, false);
        var more = new BudgetUse(8, 3600, -5, 2, 9, false);
        var other = new BudgetUse(3, 3600, -5, 0, 7, false);
        List<ResourceRequest> asked = Messages.askRequest(
                        "c",
                        List.of(
                                new Ask("r", new Wants(4, 0, 0, null, plain), lease, null),
                                new Ask("s", new Wants(4, 0, 0, null, more), null, lease),
                                new Ask("t", new Wants(4, 0, 0, null, other), lease, null),
                                new Ask("u", new Wants(4, 0, 0, null, other), null, null)))
                .getResourceList();
        var empty = ResourceRequest.newBuilder().setPriority(0).setWants(4);
        var spent = Spent.newBuilder().setAmount(3).setPeriod(3600).setIncarnation(-5);
        var need = spent.clone().setAmount(8).setNeed(2);
        assertEquals(
                List.of(
                        empty.clone()
                                .setResourceId("r")
                                .setHas(granted())
                                .setSpent(spent)
                                .build(),
                        empty.clone()
                                .setResourceId("s")
                                .setHas(granted().setCapacity(8))
                                .setSpent(need)
                                .build(),
                        empty.clone().setResourceId("t").setSpent(spent).build(),
                        empty.clone().setResourceId("u").setSpent(spent).build()),
                asked);
        var released = Messages.releaseRequest("c", List.of(new Release("a", 7, null), new Release("b", 9, more)));
        assertEquals(List.of(Spent.getDefaultInstance(), need.build()), released.getSpentList());
        var period = io.leaseway.internal.wire.BudgetLease.newBuilder().setPeriodStart(3600);
        assertEquals(new BudgetLease(3600, null, false), budget(period));
        assertEquals(
                new BudgetLease(3600, 7200L, true),
                budget(period.clone().setPeriodEnd(7200).setStartsOver(true)));
        assertNull(budget(period.clone().clearPeriodStart()), "a malformed one");
        assertNull(read(response("r", granted()), Instant.now()).given().get(0).budget());
    }

    private static BudgetLease budget(io.leaseway.internal.wire.BudgetLease.Builder budget) {
        var answered = response("r", granted()).toBuilder().setBudget(budget).build();
        return read(answered, Instant.now()).given().get(0).budget();
    }

    @Test
    void aMessageOfAStreamStatesResourcesAndRenewsOthersByTheirIndexes() {
        var ask = new Ask("r", new Wants(3, 2, 0, null), null, null);
        var stated = List.of(new StreamRequest.Stated(4, ask));
        var renewed = List.of(new StreamRequest.Range(1, 3));
        RenewRequest first = Messages.renewRequest("c", new StreamRequest(9, 1, stated, List.of()));
        var resource = ResourceRequest.newBuilder().setResourceId("r").setPriority(2);
        assertEquals(
                RenewRequest.newBuilder()
                        .setSequence(1)
                        .setClientId("c")
                        .addEntry(Entry.newBuilder().setIndex(4).setRequest(resource.setWants(3)))
                        .build(),
                first);
        RenewRequest second = Messages.renewRequest("c", new StreamRequest(9, 2, List.of(), renewed));
        assertEquals(
                RenewRequest.newBuilder()
                        .setSequence(2)
                        .addRenew(Range.newBuilder().setFirst(1).setCount(3))
                        .build(),
                second);
    }

    @Test
    void anAnswerOnAStreamNamesResourcesByTheirIndexes() {
        var pooled = response("", granted()).toBuilder()
                .setPool(PoolState.newBuilder().setAssigned(2));
        var response = RenewResponse.newBuilder()
                .setUnixTime(1000)
                .addGrant(Grant.newBuilder().setIndex(0).setResponse(pooled.setPriority(3)))
                .addGrant(Grant.newBuilder().setIndex(1).setResponse(response("", granted())))
                .addGrant(Grant.newBuilder()
                        .setIndex(2)
                        .setResponse(response("", granted().setCapacity(Double.NaN))))
                .addLeftOut(7)
                .addProblem(Problem.newBuilder().setReason("busy").setMessage("no room"));
        Answer answer = Answer.ofRenewal(response.build(), Instant.now());
        assertEquals(1000, answer.renewed().unix());
        assertEquals(List.of(7, 2), answer.renewed().leftOut());
        assertFalse(answer.renewed().isRestart());
        assertEquals(List.of("resource 2 of the stream"), answer.malformed());
        assertEquals(1, answer.leftOut());
        assertEquals("no room", answer.why());
        answer.nameRenewed(index -> index == 0 ? "r" : null);
        assertEquals(List.of("r"), answer.given().stream().map(Given::id).toList());
        assertEquals(2, answer.pools().get("r").assigned());
        assertEquals(Map.of("r", 3L), answer.priorities());
        var restart = RenewResponse.newBuilder().setRestart("unknown stream").build();
        assertTrue(Answer.ofRenewal(restart, Instant.now()).renewed().isRestart());
        var redirect = RenewResponse.newBuilder()
                .setMastership(Mastership.newBuilder().setMasterAddress("b"))
                .build();
        assertEquals("b:5100", Answer.ofRenewal(redirect, Instant.now()).master());
    }

    private static GetCapacityResponse.Builder problems(String reason) {
        return GetCapacityResponse.newBuilder()
                .addProblem(Problem.newBuilder().setReason("too_soon"))
                .addProblem(Problem.newBuilder().setReason(reason).setMessage("no room"));
    }

    @Test
    void anAnswerWithoutLeasesFailsWithTheFirstLastingProblem() {
        Map<String, Status.Code> codes = Map.of(
                "too_many_clients", Status.Code.RESOURCE_EXHAUSTED,
                "bad_id", Status.Code.INVALID_ARGUMENT);
        codes.forEach((reason, code) -> {
            var error = assertThrows(
                    StatusRuntimeException.class,
                    () -> Answer.of(2, problems(reason).build(), Instant.now()));
            assertEquals(code, error.getStatus().getCode());
        });
        assertEquals(
                List.of(),
                Answer.of(2, problems("not_yet").build(), Instant.now()).given());
        var partial = problems("busy").addResponse(response("r", granted()));
        Answer answer = Answer.of(2, partial.build(), Instant.now());
        assertEquals(1, answer.leftOut());
        assertEquals("no room", answer.why());
    }

    @Test
    void redirectsNameTheMasterOrNone() {
        Map<String, String> masters = Map.of("a:1", "a:1", "b", "b:5100");
        masters.forEach((sent, master) -> assertEquals(master, redirect(sent).master()));
        for (String malformed : List.of("", "a:b:c", "a/b")) {
            assertTrue(redirect(malformed).isRedirect());
            assertNull(redirect(malformed).master());
        }
    }

    private static Answer redirect(String master) {
        var mastership = Mastership.newBuilder().setMasterAddress(master);
        return Answer.of(
                1, GetCapacityResponse.newBuilder().setMastership(mastership).build(), Instant.now());
    }

    @Test
    void textsOfServersAreBoundedInLogs() {
        assertEquals("\"r\"", Explain.quoted(List.of("r")));
        assertEquals("\"a\\u000ab\", \"\"", Explain.quoted(List.of("a\nb", "")));
        String many = Explain.quoted(Collections.nCopies(1000, "x".repeat(1000)));
        assertTrue(many.length() < 1500, many.length() + " characters");
        assertTrue(many.endsWith("…\" and 995 more"), many);
    }

    @Test
    void malformedPeersAreDropped() {
        assertEquals(
                List.of("a:1", "[::1]:2", "c:5100"),
                Messages.peers(List.of("a:1", "", "https://b", "[::1]:2", "x".repeat(100_000), "c")));
    }

    @Test
    void malformedNumbersOfAPoolAreReplaced() {
        Map<Double, Long> bursts = Map.of(6.0, 6 * SECOND, 0.0, 0L, 1e9, Pool.MAX_BURST, -1.0, -1L, Double.NaN, -1L);
        bursts.forEach((sent, burst) -> {
            var state = PoolState.newBuilder().setAssigned(Double.NaN).setBurstSeconds(sent);
            var response = response("r", granted()).toBuilder().setPool(state).build();
            Pool pool = read(response, Instant.now()).pools().get("r");
            assertEquals(0, pool.assigned());
            assertEquals(burst, pool.burst());
        });
    }

    @Test
    void tokensAreOneVisibleLineAndAreNotLogged() {
        for (String wrong : List.of("", "a\nb", "ä", "a\tb")) {
            assertThrows(OptionException.class, () -> Token.of(wrong));
        }
        Token token = Token.of("secret");
        assertEquals("Bearer secret", token.authorization());
        assertFalse(token.toString().contains("secret"));
    }

    @Test
    void aTokenFileIsReloadedAndAMissingFileKeepsTheToken(@TempDir Path directory) throws Exception {
        System.Logger log = System.getLogger("io.leaseway.test");
        Path path = directory.resolve("token");
        assertThrows(OptionException.class, () -> Token.ofFile(path, log));
        Files.writeString(path, "one\n");
        Token token = Token.ofFile(path, log);
        Files.writeString(path, "two\n");
        assertEquals("Bearer one", token.authorization());
        token.expire();
        assertEquals("Bearer two", token.authorization());
        Files.delete(path);
        token.expire();
        assertEquals("Bearer two", token.authorization());
    }

    @Test
    void tokensAreSentUnencryptedToThisMachineOnly() throws Exception {
        var dialer = new Dialer(null, null, Token.of("secret"), false, "test");
        for (String address : List.of("127.0.0.1:1", "localhost:1", "[::1]:1")) {
            dialer.connect(address).close();
        }
        for (String address : List.of("10.0.0.1:1", "db.internal:1", "localhost.evil:1", "[fe80::1]:1")) {
            assertThrows(Dialer.RefusedException.class, () -> dialer.connect(address));
        }
    }

    @Test
    void aConnectionThatCannotBeMadeIsRefused() {
        var refused = assertThrows(
                Dialer.RefusedException.class,
                () -> new Dialer(null, "a@b", null, false, "test").connect("127.0.0.1:1"));
        assertTrue(refused.getMessage().startsWith("127.0.0.1:1: "), refused.getMessage());
    }

    @Test
    void hintsAreReceivedOneByOne() throws Exception {
        Server server = Grpc.newServerBuilderForPort(0, InsecureServerCredentials.create())
                .addService(ServerServiceDefinition.builder("leaseway.push.v1.Push")
                        .addMethod(Conn.WATCH, ServerCalls.asyncServerStreamingCall((request, hints) -> {
                            for (int n = 0; n < 3; n++) {
                                hints.onNext(Hint.getDefaultInstance());
                            }
                            hints.onCompleted();
                        }))
                        .build())
                .build()
                .start();
        Conn conn = new Dialer(null, null, null, false, "test").connect("127.0.0.1:" + server.getPort());
        try {
            var received = new LinkedBlockingQueue<Hint>();
            var ended = new CompletableFuture<Status>();
            Conn.Watch watch = conn.watch("c", received::add, ended::complete);
            for (int n = 0; n < 3; n++) {
                assertNotNull(received.poll(10, TimeUnit.SECONDS));
                assertNull(received.poll(100, TimeUnit.MILLISECONDS), "a hint that nobody has asked for");
                watch.next();
            }
            assertTrue(ended.get(10, TimeUnit.SECONDS).isOk());
        } finally {
            conn.close();
            server.shutdownNow();
        }
    }

    @Test
    void pausesBetweenStreamsOfHintsDouble() {
        int[] hinted = {0};
        var hints = new Hints("c", Runnable::run, (resources, isEverything) -> hinted[0]++);
        assertEquals(Hints.PAUSE_UNSUPPORTED, hints.pauseAfter(Status.Code.UNIMPLEMENTED));
        for (long whole : new long[] {1, 2, 4, 8, 16, 32, 60, 60}) {
            long pause = hints.pauseAfter(Status.Code.UNAVAILABLE);
            assertTrue(pause >= whole * SECOND / 2 && pause <= whole * SECOND, pause + " of " + whole + " s");
        }
        hints.received(0, Hint.getDefaultInstance());
        assertEquals(0, hinted[0]);
        assertTrue(hints.pauseAfter(Status.Code.UNAVAILABLE) >= 30 * SECOND, "an empty hint resets the pause");
        hints.received(0, Hint.newBuilder().addResourceId("r").build());
        assertEquals(1, hinted[0]);
        assertTrue(hints.pauseAfter(Status.Code.UNAVAILABLE) <= SECOND);
    }

    @Test
    void theClockAdvancesWithTheMonotonicOne() throws Exception {
        var clock = new Clock();
        long before = clock.update();
        Thread.sleep(2);
        assertTrue(clock.update() - before >= 2 * MILLISECOND);
        assertTrue(clock.suspended() < SECOND);
    }
}
