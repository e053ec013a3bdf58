package io.leaseway;

import static io.leaseway.TestServer.eventually;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.leaseway.internal.wire.Spent;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Budgets of a client, with a server that is played or a real one. */
@Timeout(120)
class BudgetTest {
    private static final Duration PATIENCE = Duration.ofSeconds(20);
    private static final Duration SOON = Duration.ofMillis(20);

    private final List<AutoCloseable> opened = new ArrayList<>();
    private FakeServer server;
    private Client client;

    @BeforeEach
    void connect() {
        server = kept(new FakeServer(10));
        server.budgets.addAll(List.of("tokens", "dollars"));
        client = connect(server.address);
    }

    @AfterEach
    void closeAll() throws Exception {
        for (int i = opened.size() - 1; i >= 0; i--) {
            opened.get(i).close();
        }
    }

    private Client connect(String address) {
        return kept(Client.builder(address).logger(Quiet.LOGGER).connect());
    }

    private <T extends AutoCloseable> T kept(T resource) {
        opened.add(resource);
        return resource;
    }

    private static void has(Budget budget, double spent, double owed, double left) {
        assertEquals(spent, budget.spent(), "spent");
        assertEquals(owed, budget.owed(), "owed");
        assertEquals(left, budget.left(), "left");
    }

    @Test
    void aClientSpendsItsAllowanceAndNoMore() throws Exception {
        Budget tokens = client.budget("tokens");
        assertEquals(Optional.empty(), tokens.period());
        tokens.spend(6, PATIENCE);
        var hour = new Budget.Period(Instant.ofEpochSecond(3600), Instant.ofEpochSecond(7200));
        assertEquals(Optional.of(hour), tokens.period());
        tokens.spendAsync(1).get(5, TimeUnit.SECONDS);
        assertFalse(tokens.trySpend(4));
        assertTrue(tokens.trySpend(1));
        Budget again = client.budget("tokens");
        has(again, 8, 0, 2);
        assertThrows(TimeoutException.class, () -> tokens.spend(3, SOON));
        CompletableFuture<Void> cancelled = tokens.spendAsync(3);
        assertTrue(cancelled.cancel(false));
        has(again, 8, 0, 2);
        for (double invalid : new double[] {-1, Double.NaN, 1e16}) {
            assertThrows(IllegalArgumentException.class, () -> tokens.trySpend(invalid));
            assertThrows(IllegalArgumentException.class, () -> tokens.spend(invalid));
            assertThrows(IllegalArgumentException.class, () -> tokens.spendAsync(invalid));
            assertThrows(IllegalArgumentException.class, () -> tokens.reserve(invalid, SOON));
            assertThrows(IllegalArgumentException.class, () -> tokens.tryReserve(invalid));
            assertThrows(IllegalArgumentException.class, () -> tokens.reserveAsync(invalid));
            assertThrows(IllegalArgumentException.class, () -> tokens.charge(invalid));
        }
        assertThrows(KindException.class, () -> client.rate("tokens"));
        again.close();
        CompletableFuture<Void> waiting = tokens.spendAsync(3);
        tokens.close();
        var refused = assertThrows(ExecutionException.class, () -> waiting.get(5, TimeUnit.SECONDS));
        assertEquals(ClosedException.class, refused.getCause().getClass());
        assertThrows(ClosedException.class, () -> tokens.spend(0));
        eventually("a release", () -> server.released.equals(List.of("tokens")));
        assertEquals(8, server.reported.get(0).getAmount());
        assertEquals(3600, server.reported.get(0).getPeriod());
    }

    @Test
    void reservationsAreSettledOnceAndTheirExcessIsOwed() throws Exception {
        Budget tokens = client.budget("tokens");
        BudgetReservation reservation = tokens.reserve(7, PATIENCE);
        assertEquals(7, reservation.reserved());
        has(tokens, 7, 0, 3);
        assertEquals(Optional.empty(), tokens.tryReserve(4));
        try (BudgetReservation small = tokens.tryReserve(3).orElseThrow()) {
            assertThrows(IllegalArgumentException.class, () -> reservation.settle(-1));
            reservation.settle(2.5);
            reservation.settle(0);
            reservation.close();
            has(tokens, 5.5, 0, 4.5);
            assertEquals(3, small.reserved());
        }
        has(tokens, 5.5, 0, 4.5);
        tokens.reserve(4).cancel();
        tokens.reserveAsync(4).get(5, TimeUnit.SECONDS).cancel();
        has(tokens, 5.5, 0, 4.5);
        tokens.charge(1);
        tokens.reserve(1).settle(5);
        has(tokens, 10, 1.5, 0);
        assertFalse(tokens.trySpend(0));
        CompletableFuture<BudgetReservation> cancelled = tokens.reserveAsync(1);
        assertTrue(cancelled.cancel(false));
        assertThrows(TimeoutException.class, () -> tokens.reserve(1, SOON));
        server.capacity = 20;
        assertEquals(2, tokens.reserve(2, PATIENCE).reserved());
        has(tokens, 13.5, 0, 6.5);
    }

    @Test
    void reservationsKeepABudgetOpen() throws Exception {
        Budget tokens = client.budget("tokens");
        BudgetReservation reservation = tokens.reserve(7, PATIENCE);
        BudgetReservation small = tokens.tryReserve(1).orElseThrow();
        tokens.close();
        try (Budget again = client.budget("tokens")) {
            has(again, 8, 0, 2);
            reservation.settle(2);
            has(again, 3, 0, 7);
        }
        assertEquals(List.of(), server.released);
        small.settle(0);
        eventually("a release", () -> server.released.equals(List.of("tokens")));
        assertEquals(2, server.reported.get(0).getAmount());
        assertThrows(ClosedException.class, () -> tokens.reserve(0));
    }

    @Test
    void aBudgetThatIsOpenedAgainIsAnotherIncarnation() throws Exception {
        Budget tokens = client.budget("tokens");
        tokens.spend(7, PATIENCE);
        eventually("a report", () -> last().getAmount() == 7);
        long before = last().getIncarnation();
        tokens.close();
        Budget again = client.budget("tokens");
        has(again, 0, 0, 0);
        again.spend(10, PATIENCE);
        eventually("a report", () -> last().getAmount() == 10);
        assertTrue(last().getIncarnation() != before && before != 0);
    }

    /** What is spent until a budget is closed is reported, also if its client is closed meanwhile. */
    @Test
    void aBudgetThatIsClosedWithItsClientReportsAllThatWasSpent() throws Exception {
        server.refreshSeconds = 60;
        var closing = new CompletableFuture<Void>();
        var other = kept(Client.builder(server.address)
                .logger(Quiet.LOGGER)
                .leaseObserver(change -> {
                    if (change.capacity() == 0) {
                        // The budget is being closed. A release comes within this time, if it is sent now.
                        closing.complete(null);
                        TestServer.sleep(500);
                    }
                })
                .connect());
        Budget tokens = other.budget("tokens");
        eventually("an allowance", () -> tokens.left() == 10);
        CompletableFuture<Void> closed = closing.thenRunAsync(other::close);
        assertTrue(tokens.trySpend(5));
        tokens.close();
        closed.get(20, TimeUnit.SECONDS);
        assertEquals(List.of("tokens"), server.released);
        assertEquals(5, server.reported.get(0).getAmount());
    }

    private Spent last() {
        return server.last == null
                ? Spent.getDefaultInstance()
                : server.last.getResource(0).getSpent();
    }

    @Test
    void missingAmountsAreAskedForAtOnce() throws Exception {
        server.refreshSeconds = 60;
        Budget tokens = client.budget("tokens");
        tokens.spend(10, PATIENCE);
        server.capacity = 20;
        assertFalse(tokens.trySpend(8));
        eventually("the refused amount is asked for", () -> tokens.left() == 10);
        tokens.charge(15);
        has(tokens, 20, 5, 0);
        server.capacity = 30;
        eventually("what is owed is asked for", () -> tokens.owed() == 0);
        has(tokens, 25, 0, 5);
    }

    @Test
    void amountsArePartsOfSeveralLimits() throws Exception {
        Budget tokens = client.budget("tokens");
        Budget dollars = client.budget("dollars");
        Gauge slots = client.gauge("slots", options -> options.wants(2));
        Rate calls = client.rate("calls", options -> options.wants(2).burst(10));
        client.ready(PATIENCE);
        Limits all = client.limits(tokens.of(4), slots.of(2), dollars.of(0.25), calls.of());
        assertEquals(List.of("tokens", "slots", "dollars", "calls"), all.resources());
        Permit permit = all.acquire(PATIENCE);
        has(tokens, 4, 0, 6);
        has(dollars, 0.25, 0, 9.75);
        all.refund(1, 0, 0.25, 0);
        has(tokens, 3, 0, 7);
        has(dollars, 0, 0, 10);
        var refused = assertThrows(
                RefusedException.class, () -> all.withPermits(8, 0, 1, 0).tryAcquire());
        assertEquals(0, refused.index());
        assertEquals("tokens", refused.resource());
        assertEquals(Optional.empty(), refused.retryAfter());
        assertEquals("leaseway: `tokens`: the allowance does not cover the amount now", refused.getMessage());
        has(dollars, 0, 0, 10);
        // It waits for the gauge with its amounts reserved.
        Limits more = all.withPermits(2, 9, 1.5, 0);
        CompletableFuture<Permit> cancelled = more.acquireAsync();
        has(dollars, 1.5, 0, 8.5);
        assertTrue(cancelled.cancel(false));
        assertThrows(TimeoutException.class, () -> more.reserve(SOON));
        has(tokens, 3, 0, 7);
        has(dollars, 0, 0, 10);
        permit.close();
        permit.close();
        assertEquals(0, slots.inUse());
        has(tokens, 3, 0, 7);
        Reservations reservation = all.withPermits(2, 1, 1.5, 1).reserveAsync().get(20, TimeUnit.SECONDS);
        assertEquals(1, slots.inUse());
        reservation.settle(0.5, 0, 2, 0);
        reservation.settle(2, 0, 2, 0);
        assertEquals(0, slots.inUse());
        has(tokens, 3.5, 0, 6.5);
        has(dollars, 2, 0, 8);
        all.charge(0, 0, 9, 0);
        has(dollars, 10, 1, 0);
        assertThrows(RefusedException.class, all::tryReserve);
        all.withPermits(1, 1, 0, 0).tryReserve().cancel();
        has(tokens, 3.5, 0, 6.5);
        assertThrows(IllegalArgumentException.class, () -> tokens.of(-1));
        assertThrows(IllegalArgumentException.class, () -> all.charge(1, 0, 1, 0.5));
        assertThrows(IllegalArgumentException.class, () -> all.withPermits(1, 0.5, 1, 1));
        assertThrows(IllegalArgumentException.class, () -> all.charge(1));
        CompletableFuture<Permit> waiting = all.acquireAsync();
        dollars.close();
        var closed = assertThrows(ExecutionException.class, () -> waiting.get(20, TimeUnit.SECONDS));
        assertEquals(ClosedException.class, closed.getCause().getClass());
        assertThrows(ClosedException.class, all::tryAcquire);
        assertThrows(ClosedException.class, () -> all.acquire(PATIENCE));
        has(tokens, 3.5, 0, 6.5);
    }

    @Test
    void nothingIsSpentAfterTheExpiry() throws Exception {
        server.lengthMs = 1500;
        Budget tokens = client.budget("tokens");
        tokens.spend(1, PATIENCE);
        server.isSilent = true;
        TestServer.sleep(1600);
        assertFalse(tokens.trySpend(0));
        assertEquals(0, tokens.left());
        assertEquals(0, tokens.capacity());
        assertEquals(Basis.FALLBACK, tokens.basis());
        server.isSilent = false;
        tokens.spend(9, PATIENCE);
        assertEquals(10, tokens.spent());
    }

    @Test
    void closingTheClientReportsWhatWasSpent() throws Exception {
        Budget tokens = client.budget("tokens");
        BudgetReservation reservation = tokens.reserve(3, PATIENCE);
        client.budget("dollars").spend(0.25, PATIENCE);
        client.rate("searches").acquire();
        client.close();
        assertEquals(List.of("dollars", "searches", "tokens"), server.released);
        assertEquals(
                List.of(0.25, 0.0, 3.0),
                server.reported.stream().map(Spent::getAmount).toList());
        reservation.settle(1);
        assertThrows(ClosedException.class, () -> tokens.spend(0));
        assertThrows(ClosedException.class, () -> client.budget("tokens"));
    }

    private static final String SERVED = """
            resources:
            - identifier_glob: "*"
              capacity: 100
              algorithm:
                kind: BUDGET
                lease_length: 10
                refresh_interval: 1
                learning_mode_duration: 0
                parameters: {period: none}
            """;

    @Test
    @Tag("e2e")
    void clientsOfAServerSpendNoMoreThanTheBudget() throws Exception {
        TestServer real = kept(TestServer.serveText(SERVED));
        Budget tokens = connect(real.address).budget("tokens");
        Budget others = connect(real.address).budget("tokens");
        BudgetReservation reservation = tokens.reserve(60, PATIENCE);
        assertEquals(Optional.empty(), tokens.period(), "it is spent once");
        assertThrows(TimeoutException.class, () -> others.spend(50, Duration.ofMillis(1500)));
        reservation.settle(20.5);
        tokens.charge(29.5);
        assertEquals(50, tokens.spent(), "charged to what was taken back");
        tokens.charge(20);
        assertTrue(tokens.owed() > 0 && tokens.left() == 0, tokens.owed() + " is owed");
        eventually("the next allowance pays", () -> tokens.owed() == 0);
        assertEquals(70, tokens.spent());
        others.spend(30, PATIENCE);
        for (Budget one : List.of(tokens, others)) {
            assertThrows(TimeoutException.class, () -> one.reserve(1, Duration.ofMillis(1500)));
        }
    }

    @Test
    @Tag("e2e")
    void whatWasSpentCountsAfterAClientIsClosed() throws Exception {
        TestServer real = kept(TestServer.serveText(SERVED));
        Client first = connect(real.address);
        Budget tokens = first.budget("tokens");
        tokens.spend(40, PATIENCE);
        tokens.reserve(50, PATIENCE).settle(10);
        first.close();
        Budget others = connect(real.address).budget("tokens");
        others.spend(50, PATIENCE);
        assertThrows(TimeoutException.class, () -> others.spend(1, Duration.ofMillis(1500)));
    }

    /** Threads of several clients spend what they get and settle parts of it. */
    @Test
    @Tag("e2e")
    void manyCallersSpendTheWholeBudgetAndNoMore() throws Exception {
        TestServer real = kept(TestServer.serveText(SERVED));
        List<Budget> budgets = new ArrayList<>();
        List<CompletableFuture<Double>> workers = new ArrayList<>();
        for (int n = 0; n < 3; n++) {
            Budget tokens = connect(real.address).budget("tokens");
            budgets.add(tokens);
            for (int m = 0; m < 3; m++) {
                workers.add(CompletableFuture.supplyAsync(() -> spendAll(tokens)));
            }
        }
        double used = 0;
        for (CompletableFuture<Double> worker : workers) {
            used += worker.get(60, TimeUnit.SECONDS);
        }
        double spent = budgets.stream().mapToDouble(Budget::spent).sum();
        assertEquals(used, spent);
        assertTrue(spent <= 100 && spent > 50, spent + " of 100 were spent");
        System.out.println(spent + " of 100 were spent");
    }

    /** Each of them is another incarnation, also if it is opened while the one before is being closed. */
    @Test
    @Tag("e2e")
    void budgetsThatAreOpenedAndClosedSpendNoMoreThanTheBudget() throws Exception {
        TestServer real = kept(TestServer.serveText(SERVED.replace("capacity: 100", "capacity: 1000")));
        Client one = connect(real.address);
        List<CompletableFuture<Integer>> workers = new ArrayList<>();
        for (int n = 0; n < 3; n++) {
            workers.add(CompletableFuture.supplyAsync(() -> {
                int spent = 0;
                for (int turn = 0; turn < 100; turn++) {
                    try (Budget tokens = one.budget("tokens")) {
                        tokens.spend(1, Duration.ofMillis(200));
                        spent++;
                        while (tokens.trySpend(1)) {
                            spent++;
                        }
                    } catch (TimeoutException | ClosedException e) {
                        // Another time.
                    } catch (InterruptedException e) {
                        throw new AssertionError(e);
                    }
                }
                return spent;
            }));
        }
        int spent = 0;
        for (CompletableFuture<Integer> worker : workers) {
            spent += worker.get(100, TimeUnit.SECONDS);
        }
        assertTrue(spent > 0 && spent <= 1000, spent + " of 1000 were spent");
        System.out.println(spent + " of 1000 were spent");
    }

    /** Callers of two clients name two budgets in different orders, and share a gauge. */
    @Test
    @Tag("e2e")
    void severalLimitsOfAServerSpendWholeBudgetsAndNoMore() throws Exception {
        String slots = new TestServer.Template("slots", 4, 10, 1).toString();
        TestServer real = kept(TestServer.serveText(SERVED.replace("resources:\n", "resources:\n" + slots)));
        List<Budget> budgets = new ArrayList<>();
        List<CompletableFuture<Double>> workers = new ArrayList<>();
        for (int n = 0; n < 2; n++) {
            Client one = connect(real.address);
            Budget tokens = one.budget("tokens");
            Budget dollars = one.budget("dollars");
            Gauge gauge = one.gauge("slots", options -> options.wants(4));
            budgets.addAll(List.of(tokens, dollars));
            Limits there = one.limits(tokens.of(2), gauge.of(), dollars.of(2));
            Limits back = one.limits(dollars.of(2), tokens.of(2), gauge.of());
            workers.add(CompletableFuture.supplyAsync(() -> reserveAll(there, 0.5, 0, 1)));
            workers.add(CompletableFuture.supplyAsync(() -> reserveAll(back, 1, 0.5, 0)));
        }
        double turns = 0;
        for (CompletableFuture<Double> worker : workers) {
            turns += worker.get(100, TimeUnit.SECONDS);
        }
        double tokens = budgets.get(0).spent() + budgets.get(2).spent();
        double dollars = budgets.get(1).spent() + budgets.get(3).spent();
        assertEquals(turns / 2, tokens);
        assertEquals(turns, dollars);
        assertTrue(dollars <= 100 && dollars > 20, dollars + " of 100 were spent");
        System.out.println(tokens + " and " + dollars + " of 100 were spent");
    }

    private static double reserveAll(Limits limits, double... used) {
        double turns = 0;
        try {
            while (true) {
                limits.reserve(Duration.ofSeconds(3)).settle(used);
                turns++;
            }
        } catch (TimeoutException e) {
            return turns;
        } catch (InterruptedException e) {
            throw new AssertionError(e);
        }
    }

    private static double spendAll(Budget tokens) {
        double used = 0;
        try {
            while (true) {
                tokens.reserve(2, Duration.ofSeconds(3)).settle(0.5);
                used += 0.5;
            }
        } catch (TimeoutException e) {
            return used;
        } catch (InterruptedException e) {
            throw new AssertionError(e);
        }
    }
}
