package io.leaseway;

import static io.leaseway.TestServer.eventually;
import static io.leaseway.TestServer.sleep;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.net.httpserver.HttpServer;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.ClientInterceptor;
import io.grpc.ClientInterceptors;
import io.grpc.Context;
import io.grpc.ForwardingClientCall.SimpleForwardingClientCall;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.ClientCalls;
import io.leaseway.examples.LimitingRequestInterceptor;
import io.leaseway.internal.transport.Conn;
import io.leaseway.internal.wire.Entry;
import io.leaseway.internal.wire.GetCapacityRequest;
import io.leaseway.internal.wire.GetCapacityResponse;
import io.leaseway.internal.wire.Grant;
import io.leaseway.internal.wire.RenewRequest;
import io.leaseway.internal.wire.RenewResponse;
import io.leaseway.internal.wire.ResourceRequest;
import io.leaseway.internal.wire.ResourceResponse;
import io.leaseway.internal.wire.WatchRequest;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.net.http.HttpTimeoutException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.ResourceBundle;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;
import java.util.function.Function;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.function.Executable;
import org.springframework.http.client.JdkClientHttpRequestFactory;
import org.springframework.web.client.RestClient;

/** With a server that is played. */
@Timeout(60)
class ClientTest {
    private final List<AutoCloseable> opened = new ArrayList<>();
    private FakeServer server;

    @AfterEach
    void closeAll() throws Exception {
        released.complete(null);
        for (int i = opened.size() - 1; i >= 0; i--) {
            opened.get(i).close();
        }
    }

    private Client connect(double capacity) {
        return connect(capacity, builder -> {});
    }

    private Client connect(double capacity, Consumer<ClientBuilder> configure) {
        server = kept(new FakeServer(capacity));
        ClientBuilder builder = Client.builder(server.address).logger(Quiet.LOGGER);
        configure.accept(builder);
        return kept(builder.connect());
    }

    private <T extends AutoCloseable> T kept(T resource) {
        opened.add(resource);
        return resource;
    }

    private static void ready(Client client) throws InterruptedException {
        client.ready(Duration.ofSeconds(20));
    }

    private static ResourceStats only(Client client) {
        return client.stats().resources().get(0);
    }

    @Test
    void invalidSettingsAreNamed() {
        Map<String, Runnable> settings = Map.of(
                "several colons", () -> Client.connect("1:2:3"),
                "id of the client", () -> Client.builder("a").id("x".repeat(257)),
                "deadline", () -> Client.builder("a").deadline(Duration.ZERO),
                "server name", () -> Client.builder("a").serverName("a:b"),
                "one line", () -> Client.builder("a").token("a\nb").connect(),
                "set one of them",
                        () -> Client.builder("a")
                                .token("a")
                                .tokenFile(java.nio.file.Path.of("b"))
                                .connect(),
                "does not use TLS",
                        () -> Client.builder("http://a", "https://b").connect());
        settings.forEach((says, connect) -> {
            var exception = assertThrows(OptionException.class, connect::run);
            assertTrue(exception.getMessage().contains(says), exception.getMessage());
        });
        Client client = connect(1);
        client.gauge("gauge");
        assertThrows(KindException.class, () -> client.rate("gauge"));
        assertThrows(OptionException.class, () -> client.rate(""));
        assertThrows(OptionException.class, () -> client.rate("r", options -> options.wants(Double.NaN)));
        assertThrows(OptionException.class, () -> client.rate("r", options -> options.burst(Double.NaN)));
        assertThrows(OptionException.class, () -> client.rate("r", options -> options.window(Duration.ofNanos(-1))));
        assertThrows(NullPointerException.class, () -> client.rate("r", options -> options.mode(null)));
    }

    @Test
    void handlesOfAResourceShareTheirSettings() {
        Client client = connect(1);
        client.rate(
                "r",
                options -> options.wants(5).priority(2).mode(Mode.SAFE).burst(3).maxDebt(9));
        client.rate("r");
        client.rate(
                "r",
                options -> options.wants(5).priority(2).mode(Mode.SAFE).burst(3).maxDebt(9));
        Map<String, Consumer<ResourceOptions>> others = Map.of(
                "wants", options -> options.wants(6),
                "priority", options -> options.priority(0),
                "mode", options -> options.mode(Mode.PESSIMISTIC),
                "burst", options -> options.window(Duration.ofSeconds(1)),
                "maximum debt", options -> options.maxDebt(8));
        others.forEach((setting, configure) -> assertEquals(
                setting,
                assertThrows(OptionException.class, () -> client.rate("r", configure))
                        .setting()));
        client.rate("r").setWants(6);
        client.rate("r", others.get("wants"));
        client.rate("estimated");
        assertThrows(OptionException.class, () -> client.rate("estimated", others.get("wants")));
    }

    /** Their sums must not overflow. */
    @Test
    void numbersOfPermitsAreBounded() throws Exception {
        Client client = connect(0);
        Rate rate = client.rate("r", options -> options.wants(1));
        Gauge gauge = client.gauge("g", options -> options.wants(1));
        for (long n : new long[] {-1, 1_000_000_000_000_001L, Long.MAX_VALUE}) {
            List<Executable> calls = List.of(
                    () -> rate.tryAcquire(n),
                    () -> rate.acquire(n),
                    () -> rate.acquireAsync(n),
                    () -> rate.tryReserve(n),
                    () -> rate.charge(n),
                    () -> rate.refund(n),
                    () -> rate.of(n),
                    () -> gauge.tryAcquire(n),
                    () -> gauge.acquire(n, Duration.ZERO),
                    () -> gauge.acquireAsync(n),
                    () -> client.limits(rate.of()).withPermits(n));
            calls.forEach(call -> assertThrows(IllegalArgumentException.class, call));
        }
        long most = 1_000_000_000_000_000L;
        rate.acquireAsync(most);
        rate.acquireAsync(most);
        assertEquals(2 * most, client.stats().resources().get(1).waiting());
    }

    @Test
    void aServerThatHangsIsNoReasonToUseALeaseAfterItsExpiry() throws Exception {
        Client client = connect(1000, builder -> builder.mode(Mode.PESSIMISTIC));
        server.lengthMs = 1500;
        Rate rate = client.rate("r", options -> options.wants(1000));
        ready(client);
        server.isSilent = true;
        sleep(1600);
        assertFalse(rate.tryAcquire(), "a permit after the expiry");
        assertEquals(0, rate.capacity());
        assertEquals(Basis.FALLBACK, rate.basis());
        eventually("the expiry is counted", () -> client.stats().leasesEnded() == 1);
    }

    @Test
    void serversMayHaveAddressesOfIpv6() throws Exception {
        connect(1);
        String port = server.address.substring(server.address.lastIndexOf(':') + 1);
        try (var socket = new Socket("::1", Integer.parseInt(port))) {
            assertTrue(socket.isConnected());
        } catch (IOException e) {
            Assumptions.abort("this machine has no IPv6: " + e);
        }
        Client client =
                kept(Client.builder("[::1]:" + port).logger(Quiet.LOGGER).connect());
        client.rate("r");
        ready(client);
    }

    @Test
    void endpointsReplaceThoseOfTheEnvironment() {
        ClientBuilder builder = Environment.builder(Map.of("LEASEWAY_SERVER", "a,b:1"));
        assertEquals(List.of("a:5100", "b:1"), builder.addresses());
        assertEquals(List.of("c:5100"), builder.endpoints("c").addresses());
        assertEquals(List.of("127.0.0.1:5100"), Environment.builder(Map.of()).addresses());
    }

    @Test
    void filesOfTheEnvironmentThatCannotBeReadAreNamed() {
        Map<String, Map<String, String>> missing = Map.of(
                "LEASEWAY_TLS_CA", Map.of("LEASEWAY_TLS_CA", "/missing"),
                "LEASEWAY_TLS_CERT", Map.of("LEASEWAY_TLS_CERT", "/missing", "LEASEWAY_TLS_KEY", "/missing"));
        missing.forEach((name, variables) -> assertEquals(
                name,
                assertThrows(OptionException.class, () -> Environment.builder(variables))
                        .setting()));
    }

    @Test
    void tokensAreNotSentByCredentialsWithoutTls() throws Exception {
        connect(1);
        // No address of loopback, although it leads there.
        String address = server.address.replace("127.0.0.1", "0.0.0.0");
        ClientBuilder builder = Client.builder(address)
                .tls(InsecureChannelCredentials.create())
                .token("secret")
                .logger(Quiet.LOGGER);
        Client refusing = kept(builder.connect());
        refusing.rate("r");
        eventually("a refusal", () -> refusing.health().lastError().contains("refusing to send the token without TLS"));
        assertEquals(0, server.asked.get());
        Client allowing = kept(builder.allowClearToken().connect());
        allowing.rate("r");
        ready(allowing);
    }

    @Test
    void leaseObserversSeeLeasedCapacity() throws Exception {
        List<Double> seen = new CopyOnWriteArrayList<>();
        Client client = connect(7, builder -> builder.leaseObserver(change -> seen.add(change.capacity())));
        Rate rate = client.rate("r", options -> options.wants(7));
        ready(client);
        server.capacity = 5;
        eventually("a cut", () -> rate.limit() == 5);
        client.close();
        assertEquals(List.of(7.0, 5.0, 0.0), seen);
        assertEquals(List.of("r"), server.released);
    }

    @Test
    void handlesShareALeaseUntilTheLastIsClosed() throws Exception {
        Client client = connect(2);
        Gauge first = client.gauge("r");
        Gauge second = client.gauge("r");
        Permit permit = first.acquire();
        first.close();
        first.close();
        assertEquals(1, second.inUse());
        second.close();
        assertTrue(second.tryAcquire().isPresent(), "a permit keeps its gauge open");
        assertEquals(List.of(), server.released);
        permit.close();
        assertEquals(1, client.stats().resources().size(), "another permit is in use");
    }

    @Test
    void reservationsSettleAndCancel() throws Exception {
        Client client = connect(1000);
        Rate rate = client.rate(
                "r", options -> options.wants(1000).window(Duration.ofHours(1)).maxDebt(1_000_000));
        Reservation reservation = rate.reserve(50);
        assertEquals(50, reservation.reserved());
        assertEquals(50, only(client).taken());
        reservation.settle(20);
        reservation.settle(50);
        assertEquals(20, only(client).taken(), "only the first call counts");
        rate.reserve(1).cancel();
        rate.reserveAsync(5).get(5, TimeUnit.SECONDS).cancel();
        assertEquals(20, only(client).taken());
        try (Reservation kept = rate.reserve(3);
                Reservation settled = rate.reserve(3)) {
            settled.settle(1);
            assertEquals(3, kept.reserved());
        }
        assertEquals(24, only(client).taken());
        var exceeded = assertThrows(DebtExceededException.class, () -> rate.charge(10_000_000));
        assertEquals(1_000_000, exceeded.maxDebt());
        assertTrue(rate.debt() > 0 && rate.available() < 0 && !rate.tryAcquire());
        assertTrue(rate.retryAfter(1).orElseThrow().compareTo(Duration.ZERO) > 0);
        assertEquals(exceeded.uncharged(), client.stats().uncharged());
    }

    @Test
    void waitsEndWithTheirTimeoutOrInterruptOrCancellation() throws Exception {
        Client client = connect(0);
        Rate rate = client.rate("r", options -> options.wants(1));
        Gauge gauge = client.gauge("g");
        ready(client);
        assertThrows(TimeoutException.class, () -> rate.acquire(1, Duration.ofMillis(20)));
        assertThrows(TimeoutException.class, () -> gauge.acquire(1, Duration.ofMillis(20)));
        assertFalse(rate.tryAcquire(1, Duration.ofMillis(20)));
        assertTrue(gauge.tryAcquire(1, Duration.ofMillis(20)).isEmpty());
        assertThrows(IllegalArgumentException.class, () -> rate.acquire(-1));
        assertTrue(rate.retryAfter(1).isEmpty(), "without capacity nobody knows");

        Thread.currentThread().interrupt();
        assertThrows(InterruptedException.class, rate::acquire);
        Thread test = Thread.currentThread();
        new Thread(() -> {
                    eventually("it waits", () -> only(client).waiting() == 1);
                    test.interrupt();
                })
                .start();
        assertThrows(InterruptedException.class, gauge::acquire);

        CompletableFuture<Void> cancelled = rate.acquireAsync(3);
        assertEquals(3, client.stats().resources().get(1).waiting());
        cancelled.cancel(false);
        assertEquals(0, client.stats().resources().get(1).waiting());
        server.capacity = 10;
        rate.acquireAsync().get(10, TimeUnit.SECONDS);
        gauge.acquireAsync().get(10, TimeUnit.SECONDS).close();
        assertEquals(1, client.stats().resources().get(1).taken());
        assertTrue(rate.tryAcquire(1, Duration.ofSeconds(10)));
        gauge.tryAcquire(1, Duration.ofSeconds(10)).orElseThrow().close();
    }

    /** A future may also be completed by its owner, as by completeOnTimeout. */
    @Test
    void futuresThatAreCompletedOtherwiseLeaveTheQueue() throws Exception {
        Client client = connect(0);
        Rate rate = client.rate("r", options -> options.wants(1));
        Gauge gauge = client.gauge("g", options -> options.wants(1));
        server.budgets.add("b");
        Budget budget = client.budget("b");
        ready(client);
        rate.acquireAsync(3).complete(null);
        gauge.acquireAsync(1).complete(() -> {});
        client.limits(rate.of(3), gauge.of()).acquireAsync().complete(() -> {});
        client.limits(rate.of(3), budget.of(1)).acquireAsync().complete(() -> {});
        client.stats().resources().forEach(resource -> assertEquals(0, resource.waiting(), resource.name()));
        CompletableFuture<Void> spent = budget.spendAsync(8);
        spent.complete(null);
        server.capacity = 10;
        budget.spend(5, Duration.ofSeconds(20));
        assertEquals(5, budget.spent());
    }

    /** A future that is cancelled when it is its turn has either its permits or none taken. */
    @Test
    void cancellationsThatRaceLoseNoPermits() throws Exception {
        Client client = connect(5);
        Gauge gauge = client.gauge("g", options -> options.wants(5));
        ready(client);
        var granted = new AtomicInteger();
        for (int n = 0; n < 500; n++) {
            List<Permit> all = List.of(gauge.acquire(5));
            CompletableFuture<Permit> future = gauge.acquireAsync(5);
            var canceller = new Thread(() -> future.cancel(false));
            canceller.start();
            all.get(0).close();
            canceller.join();
            if (!future.isCancelled()) {
                granted.incrementAndGet();
                future.get(5, TimeUnit.SECONDS).close();
            }
            eventually("all is returned", () -> gauge.inUse() == 0);
            assertEquals(0, only(client).waiting());
            gauge.tryAcquire(5).orElseThrow().close();
        }
        System.out.println(granted + " of 500 were granted");
    }

    /** A caller that is interrupted, or times out, when it is its turn has either its permits or none taken. */
    @Test
    void interruptsAndTimeoutsThatRaceLoseNoPermits() throws Exception {
        Client client = connect(5);
        Gauge gauge = client.gauge("g", options -> options.wants(5));
        ready(client);
        var granted = new AtomicInteger();
        var refused = new AtomicInteger();
        for (int n = 0; n < 500; n++) {
            Permit held = gauge.acquire(5);
            Duration timeout = n % 2 == 0 ? Duration.ofDays(1) : Duration.ofNanos(100_000);
            var caller = new Thread(() -> {
                try {
                    gauge.acquire(5, timeout).close();
                    granted.incrementAndGet();
                } catch (InterruptedException | TimeoutException e) {
                    refused.incrementAndGet();
                }
            });
            caller.start();
            while (only(client).waiting() == 0 && caller.isAlive()) {
                Thread.onSpinWait();
            }
            held.close();
            caller.interrupt();
            caller.join();
            assertEquals(0, gauge.inUse());
            assertEquals(0, only(client).waiting());
        }
        assertEquals(500, granted.get() + refused.get());
        System.out.println(granted + " of 500 were granted");
    }

    /** An executor that was shut down completes no futures, so the common pool does. */
    @Test
    void futuresAreCompletedWithoutTheirExecutor() throws Exception {
        var executor = Executors.newSingleThreadExecutor();
        Client client = connect(0, builder -> builder.executor(executor));
        Rate rate = client.rate("r", options -> options.wants(1000));
        ready(client);
        CompletableFuture<String> first =
                rate.acquireAsync().thenApply(taken -> Thread.currentThread().getName());
        CompletableFuture<Void> second = rate.acquireAsync();
        executor.shutdown();
        server.capacity = 1000;
        String thread = first.get(10, TimeUnit.SECONDS);
        assertFalse(thread.startsWith("leaseway"), thread);
        second.get(10, TimeUnit.SECONDS);
    }

    /** No lock is held while code of callers runs, and the thread of the client does not wait for its own end. */
    @Test
    void executorsMayRunTasksDirectly() throws Exception {
        Client client = connect(0, builder -> builder.executor(Runnable::run));
        Gauge gauge = client.gauge("g", options -> options.wants(5));
        ready(client);
        CompletableFuture<Double> capacity = gauge.acquireAsync()
                .thenApply(permit -> CompletableFuture.supplyAsync(gauge::capacity)
                        .orTimeout(5, TimeUnit.SECONDS)
                        .join());
        server.capacity = 5;
        assertEquals(5, capacity.get(20, TimeUnit.SECONDS));
        CompletableFuture<Void> closed = gauge.changed().thenRun(client::close);
        server.capacity = 4;
        closed.get(20, TimeUnit.SECONDS);
        eventually("the lease is released", () -> server.released.contains("g"));
    }

    /** Waits for leases end when there will be none. */
    @Test
    void waitsForLeasesEndWhenTheResourceOrTheClientIsClosed() throws Exception {
        Client client = connect(1);
        server.isSilent = true;
        Rate first = client.rate("first");
        Rate second = client.rate("second");
        CompletableFuture<Void> one = readyAsync(() -> first.ready(Duration.ofSeconds(20)));
        CompletableFuture<Void> all = readyAsync(() -> client.ready(Duration.ofSeconds(20)));
        sleep(50);
        first.close();
        assertClosed(one);
        assertThrows(ClosedException.class, () -> first.ready(Duration.ofSeconds(20)));
        assertFalse(all.isDone(), "the second resource is waited for");
        client.close();
        assertClosed(all);
        assertThrows(ClosedException.class, () -> second.ready(Duration.ofSeconds(20)));
    }

    private interface Wait {
        void run() throws InterruptedException;
    }

    private static CompletableFuture<Void> readyAsync(Wait wait) {
        return CompletableFuture.runAsync(() -> {
            try {
                wait.run();
            } catch (InterruptedException e) {
                throw new AssertionError(e);
            }
        });
    }

    private static void assertClosed(CompletableFuture<?> future) {
        var refused = assertThrows(ExecutionException.class, () -> future.get(10, TimeUnit.SECONDS));
        assertEquals(ClosedException.class, refused.getCause().getClass());
    }

    /** A logger that fails. */
    private static final class Broken implements System.Logger {
        @Override
        public String getName() {
            return "broken";
        }

        @Override
        public boolean isLoggable(Level level) {
            throw new AssertionError("on purpose");
        }

        @Override
        public void log(Level level, ResourceBundle bundle, String message, Throwable thrown) {
            throw new AssertionError("on purpose");
        }

        @Override
        public void log(Level level, ResourceBundle bundle, String format, Object... params) {
            throw new AssertionError("on purpose");
        }
    }

    @Test
    void errorsOfLoggersAndObserversDoNotEndTheThreadOfTheClient() throws Exception {
        Client client = connect(
                5,
                builder -> builder.logger(new Broken())
                        .deadline(Duration.ofMillis(200))
                        .leaseObserver(change -> {
                            throw new AssertionError("on purpose");
                        }));
        server.isSilent = true;
        Rate rate = client.rate("r", options -> options.wants(5));
        eventually("an error", () -> client.health().lastError().contains("an error of the client"));
        server.isSilent = false;
        ready(client);
        assertEquals(5, rate.limit());
    }

    @Test
    void callersDoNotWaitForAThreadThatHasEnded() throws Exception {
        Set<Thread> others = Thread.getAllStackTraces().keySet();
        Client client = connect(0);
        Rate rate = client.rate("r", options -> options.wants(5));
        ready(client);
        CompletableFuture<Void> waiting = rate.acquireAsync();
        Thread.getAllStackTraces().keySet().stream()
                .filter(thread -> thread.getName().equals("leaseway-client") && !others.contains(thread))
                .forEach(Thread::interrupt);
        assertClosed(waiting);
        assertEquals("the thread of the client was interrupted", client.health().lastError());
        assertThrows(ClosedException.class, () -> client.rate("other"));
        client.close();
    }

    @Test
    void waitersAreServedInOrder() throws Exception {
        Client client = connect(0);
        Rate rate = client.rate("r", options -> options.wants(1000));
        ready(client);
        List<Integer> order = new CopyOnWriteArrayList<>();
        List<Thread> threads = new ArrayList<>();
        for (int n = 0; n < 5; n++) {
            int number = n;
            var thread = new Thread(() -> {
                try {
                    rate.acquire(50);
                    order.add(number);
                } catch (InterruptedException e) {
                    throw new AssertionError(e);
                }
            });
            thread.start();
            threads.add(thread);
            eventually("it waits", () -> only(client).waiting() == 50 * (number + 1));
        }
        server.capacity = 1000;
        for (Thread thread : threads) {
            thread.join();
        }
        assertEquals(List.of(0, 1, 2, 3, 4), order);
    }

    @Test
    void estimatedWantsFollowRefusedCallers() {
        Client client = connect(1);
        Rate rate = client.rate("r");
        eventually("500 callers per second want more than 100", () -> {
            rate.tryAcquire();
            GetCapacityRequest last = server.last;
            return last != null && last.getResource(0).getWants() > 100;
        });
    }

    private double wants(String name) {
        GetCapacityRequest last = server.last;
        return last == null
                ? 0
                : last.getResourceList().stream()
                        .filter(resource -> resource.getResourceId().equals(name))
                        .mapToDouble(ResourceRequest::getWants)
                        .sum();
    }

    @Test
    void wantsDoNotDropWhenTheyAreEstimated() throws Exception {
        Client client = connect(1);
        Rate fixed = client.rate("fixed", options -> options.wants(50));
        Gauge gauge = client.gauge("gauge", options -> options.wants(50));
        Rate estimated = client.rate("estimated");
        eventually("demand", () -> {
            estimated.tryAcquire();
            return wants("estimated") > 100;
        });
        fixed.estimateWants();
        gauge.estimateWants();
        estimated.estimateWants();
        int before = server.asked.get();
        eventually("three requests", () -> {
            estimated.tryAcquire();
            assertTrue(wants("estimated") > 50, wants("estimated") + " are wanted");
            return server.asked.get() >= before + 3;
        });
        // They fall with a time constant of 15 seconds.
        assertTrue(wants("fixed") > 10 && wants("fixed") <= 50, wants("fixed") + " are wanted");
        assertTrue(wants("gauge") > 10 && wants("gauge") <= 50, wants("gauge") + " are wanted");
    }

    @Test
    void permitsOfSeveralLimitsAreTakenTogetherOrNotAtAll() throws Exception {
        Client client = connect(5);
        Gauge slots = client.gauge("slots", options -> options.wants(5));
        Rate tokens =
                client.rate("tokens", options -> options.wants(5).burst(10).maxDebt(50));
        ready(client);
        Limits both = client.limits(tokens.of(5), slots.of());
        assertEquals(List.of("tokens", "slots"), both.resources());
        Permit permit = both.acquire(Duration.ofSeconds(10));
        assertEquals(1, slots.inUse());
        var refused = assertThrows(RefusedException.class, both::tryAcquire);
        assertEquals(0, refused.index());
        assertEquals("tokens", refused.resource());
        assertEquals(0, refused.getStackTrace().length);
        assertTrue(refused.retryAfter().orElseThrow().compareTo(Duration.ofSeconds(2)) < 0);
        assertEquals(1, slots.inUse());
        permit.close();
        permit.close();
        assertEquals(0, slots.inUse());
        Permit two = both.withPermits(0, 5).tryAcquire();
        refused = assertThrows(
                RefusedException.class, () -> both.withPermits(0, 1).tryAcquire());
        assertEquals(Optional.empty(), refused.retryAfter());
        assertThrows(TimeoutException.class, () -> both.withPermits(0, 1).begin(Duration.ofMillis(20)));
        CompletableFuture<Permit> cancelled = both.acquireAsync();
        assertTrue(cancelled.cancel(false));
        two.close();
        assertEquals(0, slots.inUse());
        both.beginAsync().get(10, TimeUnit.SECONDS).close();
        client.close();
        assertThrows(ClosedException.class, both::tryAcquire);
        assertThrows(ClosedException.class, both::begin);
    }

    @Test
    void reservationsOfSeveralLimitsAreSettledByLimit() throws Exception {
        Client client = connect(5);
        Gauge slots = client.gauge("slots", options -> options.wants(5));
        Rate tokens =
                client.rate("tokens", options -> options.wants(5).burst(10).maxDebt(50));
        ready(client);
        Limits both = client.limits(tokens.of(10), slots.of());
        Reservations reservation = both.reserve(Duration.ofSeconds(10));
        assertArrayEquals(new double[] {10, 1}, reservation.reserved());
        assertEquals(1, slots.inUse());
        reservation.settle(2, 0);
        reservation.settle(10, 0);
        assertEquals(0, slots.inUse());
        assertTrue(tokens.available() >= 8);
        both.charge(8, 9);
        assertTrue(tokens.available() < 8);
        both.refund(8, 9);
        assertTrue(tokens.available() >= 8);
        both.withPermits(1, 1).reserveAsync().get(10, TimeUnit.SECONDS).cancel();
        assertTrue(tokens.available() >= 8);
        try (Reservations all = both.withPermits(5, 1).reserve()) {
            assertArrayEquals(new double[] {5, 1}, all.reserved());
            assertEquals(1, slots.inUse());
        }
        assertEquals(0, slots.inUse());
        assertTrue(tokens.available() < 8);
        Reservations small = both.withPermits(1, 1).tryReserve();
        var exceeded = assertThrows(DebtExceededException.class, () -> small.settle(500, 1));
        assertTrue(exceeded.getMessage().contains("`tokens`"), exceeded.getMessage());
        assertEquals(0, slots.inUse());
        assertThrows(IllegalArgumentException.class, () -> both.charge(1));
        assertThrows(IllegalArgumentException.class, () -> tokens.of(-1));
        client.close();
    }

    /** Lets the body of /held go on. */
    private final CompletableFuture<Void> released = new CompletableFuture<>();

    /** The number of requests for /. */
    private final AtomicInteger served = new AtomicInteger();

    private HttpServer startWeb() throws IOException {
        HttpServer web = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        web.createContext("/", exchange -> {
            served.incrementAndGet();
            byte[] body = "hello".getBytes(StandardCharsets.UTF_8);
            exchange.sendResponseHeaders(200, body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
        web.createContext("/held", exchange -> {
            exchange.sendResponseHeaders(200, 5);
            exchange.getResponseBody().write('h');
            exchange.getResponseBody().flush();
            released.join();
            exchange.getResponseBody().write("ello".getBytes(StandardCharsets.UTF_8));
            exchange.close();
        });
        web.start();
        opened.add(() -> web.stop(0));
        return web;
    }

    private static URI uri(HttpServer web) {
        return URI.create("http://127.0.0.1:" + web.getAddress().getPort() + "/");
    }

    @Test
    void httpRequestsHoldAPermitUntilTheirBodyEnds() throws Exception {
        URI uri = uri(startWeb());
        Client client = connect(1);
        Gauge gauge = client.gauge("g", options -> options.wants(1));
        HttpClient browser = new LimitedHttpClient(HttpClient.newHttpClient(), gauge);
        HttpRequest request = HttpRequest.newBuilder(uri).build();
        HttpRequest held = HttpRequest.newBuilder(uri.resolve("held")).build();
        HttpResponse<InputStream> response = browser.send(held, BodyHandlers.ofInputStream());
        HttpRequest impatient =
                HttpRequest.newBuilder(uri).timeout(Duration.ofMillis(50)).build();
        assertThrows(HttpTimeoutException.class, () -> browser.send(impatient, BodyHandlers.ofString()));
        String thread = browser.sendAsync(impatient, BodyHandlers.ofString())
                .handle((answer, error) -> Thread.currentThread().getName())
                .get(10, TimeUnit.SECONDS);
        assertFalse(thread.contains("DelayScheduler"), thread);
        CompletableFuture<HttpResponse<String>> late = browser.sendAsync(impatient, BodyHandlers.ofString());
        var failed = assertThrows(ExecutionException.class, () -> late.get(10, TimeUnit.SECONDS));
        assertEquals(HttpTimeoutException.class, failed.getCause().getClass());
        assertEquals(1, gauge.inUse());
        released.complete(null);
        assertEquals("hello", new String(response.body().readAllBytes(), StandardCharsets.UTF_8));
        eventually("the permit is returned", () -> gauge.inUse() == 0);
        assertEquals("hello", browser.send(request, BodyHandlers.ofString()).body());
        assertEquals(0, gauge.inUse());
        assertEquals(
                "hello",
                browser.sendAsync(request, BodyHandlers.ofString())
                        .get(5, TimeUnit.SECONDS)
                        .body());
        assertEquals(0, gauge.inUse());
        Permit permit = gauge.acquire();
        CompletableFuture<HttpResponse<String>> waiting = browser.sendAsync(request, BodyHandlers.ofString());
        eventually("it waits", () -> only(client).waiting() == 1);
        waiting.cancel(true);
        assertEquals(0, only(client).waiting(), "a cancelled request waits");
        permit.close();
        assertEquals(0, gauge.inUse());
        int before = served.get();
        browser.send(request, BodyHandlers.ofString());
        assertEquals(before + 1, served.get(), "the cancelled request was sent");
        HttpRequest refused =
                HttpRequest.newBuilder(URI.create("http://127.0.0.1:1/")).build();
        assertThrows(IOException.class, () -> browser.send(refused, BodyHandlers.ofString()));
        assertEquals(0, gauge.inUse(), "a failed request keeps its permit");
    }

    @Test
    void requestsOfSpringHoldAPermit() throws Exception {
        URI uri = uri(startWeb());
        Gauge gauge = connect(1).gauge("g", options -> options.wants(1));
        RestClient browser = RestClient.builder()
                .requestFactory(new JdkClientHttpRequestFactory())
                .requestInterceptor(new LimitingRequestInterceptor(gauge))
                .build();
        for (int n = 0; n < 3; n++) {
            assertEquals("hello", browser.get().uri(uri).retrieve().body(String.class));
            assertEquals(0, gauge.inUse());
        }
        long during = browser.get().uri(uri).exchange((request, response) -> gauge.inUse());
        assertEquals(1, during);
    }

    @Test
    void grpcCallsAndStreamsHoldAPermit() throws Exception {
        Client client = connect(1);
        Gauge gauge = client.gauge("g", options -> options.wants(1));
        FakeServer other = kept(new FakeServer(1));
        ManagedChannel channel = Grpc.newChannelBuilder(other.address, InsecureChannelCredentials.create())
                .intercept(new LimitingClientInterceptor(gauge))
                .build();
        opened.add(channel::shutdownNow);
        var request = GetCapacityRequest.getDefaultInstance();
        ClientCalls.blockingUnaryCall(channel, Conn.GET_CAPACITY, CallOptions.DEFAULT, request);
        assertEquals(0, gauge.inUse());
        var hints = ClientCalls.blockingServerStreamingCall(
                channel, Conn.WATCH, CallOptions.DEFAULT, WatchRequest.getDefaultInstance());
        hints.next();
        assertEquals(1, gauge.inUse());
        CallOptions impatient = CallOptions.DEFAULT.withDeadlineAfter(50, TimeUnit.MILLISECONDS);
        var late = assertThrows(
                StatusRuntimeException.class,
                () -> ClientCalls.blockingUnaryCall(channel, Conn.GET_CAPACITY, impatient, request));
        assertEquals(Status.Code.DEADLINE_EXCEEDED, late.getStatus().getCode());
        var waiting = ClientCalls.futureUnaryCall(channel.newCall(Conn.GET_CAPACITY, CallOptions.DEFAULT), request);
        eventually("it waits", () -> only(client).waiting() == 1);
        waiting.cancel(true);
        assertEquals(0, only(client).waiting(), "a cancelled call waits");
        channel.shutdownNow();
        eventually("the stream ends", () -> gauge.inUse() == 0);
        assertEquals(1, other.asked.get(), "a cancelled call was sent");
    }

    @Test
    void grpcCallsBelongToTheirContext() throws Exception {
        Client client = connect(1);
        Gauge gauge = client.gauge("g", options -> options.wants(1));
        Context.Key<String> key = Context.key("test");
        var seen = new CompletableFuture<String>();
        var reader = new ClientInterceptor() {
            @Override
            public <Q, R> ClientCall<Q, R> interceptCall(
                    MethodDescriptor<Q, R> method, CallOptions options, Channel next) {
                return new SimpleForwardingClientCall<>(next.newCall(method, options)) {
                    @Override
                    public void start(Listener<R> listener, Metadata headers) {
                        seen.complete(key.get());
                        super.start(listener, headers);
                    }
                };
            }
        };
        ManagedChannel channel = Grpc.newChannelBuilder(server.address, InsecureChannelCredentials.create())
                .build();
        opened.add(channel::shutdownNow);
        Channel limited = ClientInterceptors.intercept(channel, reader, new LimitingClientInterceptor(gauge));
        Callable<GetCapacityResponse> call = () -> ClientCalls.futureUnaryCall(
                        limited.newCall(Conn.GET_CAPACITY, CallOptions.DEFAULT),
                        GetCapacityRequest.getDefaultInstance())
                .get(10, TimeUnit.SECONDS);
        Permit held = gauge.acquire();
        var timers = Executors.newSingleThreadScheduledExecutor();
        opened.add(timers::shutdownNow);
        Context late = Context.current().withDeadlineAfter(50, TimeUnit.MILLISECONDS, timers);
        assertEquals(Status.Code.DEADLINE_EXCEEDED, codeOf(late, call));
        Context.CancellableContext cancelled = Context.current().withCancellation();
        CompletableFuture<Status.Code> code = CompletableFuture.supplyAsync(() -> codeOf(cancelled, call));
        eventually("the call waits", () -> only(client).waiting() == 1);
        cancelled.cancel(null);
        assertEquals(Status.Code.CANCELLED, code.get(10, TimeUnit.SECONDS));
        assertEquals(0, only(client).waiting());
        // It is admitted in another thread.
        CompletableFuture<GetCapacityResponse> admitted = CompletableFuture.supplyAsync(() -> {
            try {
                return Context.current().withValue(key, "value").call(call);
            } catch (Exception e) {
                throw new AssertionError(e);
            }
        });
        eventually("the call waits", () -> only(client).waiting() == 1);
        held.close();
        admitted.get(10, TimeUnit.SECONDS);
        assertEquals("value", seen.get(10, TimeUnit.SECONDS));
    }

    private static Status.Code codeOf(Context context, Callable<?> call) {
        var error = assertThrows(ExecutionException.class, () -> context.call(call));
        return Status.fromThrowable(error).getCode();
    }

    @Test
    void grpcCallsThatCannotBeStartedEnd() throws Exception {
        Gauge gauge = connect(1).gauge("g", options -> options.wants(1));
        ManagedChannel channel = Grpc.newChannelBuilder(server.address, InsecureChannelCredentials.create())
                .build();
        opened.add(channel::shutdownNow);
        var broken = new ClientInterceptor() {
            @Override
            public <Q, R> ClientCall<Q, R> interceptCall(
                    MethodDescriptor<Q, R> method, CallOptions options, Channel next) {
                return new SimpleForwardingClientCall<>(next.newCall(method, options)) {
                    @Override
                    public void start(Listener<R> listener, Metadata headers) {
                        throw new IllegalStateException("on purpose");
                    }
                };
            }
        };
        Channel limited = ClientInterceptors.intercept(channel, broken, new LimitingClientInterceptor(gauge));
        var failed = assertThrows(
                StatusRuntimeException.class,
                () -> ClientCalls.blockingUnaryCall(
                        limited, Conn.GET_CAPACITY, CallOptions.DEFAULT, GetCapacityRequest.getDefaultInstance()));
        assertEquals("on purpose", failed.getCause().getMessage());
        assertEquals(0, gauge.inUse());
    }

    /** A call that is ready as soon as it begins. */
    private static final class ReadyCall<Q, R> extends ClientCall<Q, R> {
        private final List<Object> sent = new CopyOnWriteArrayList<>();

        @Override
        public void start(Listener<R> listener, Metadata headers) {
            listener.onReady();
        }

        @Override
        public void request(int messages) {}

        @Override
        public void cancel(String message, Throwable cause) {}

        @Override
        public void halfClose() {}

        @Override
        public void sendMessage(Q message) {
            sent.add(message);
        }
    }

    /** Writers wait until they are told that their call is ready. */
    @Test
    void grpcCallsThatAreReadyBeforeTheyAreAdmittedSaySo() throws Exception {
        Gauge gauge = connect(1).gauge("g", options -> options.wants(1));
        var inner = new ReadyCall<RenewRequest, RenewResponse>();
        var channel = new Channel() {
            @Override
            @SuppressWarnings("unchecked")
            public <Q, R> ClientCall<Q, R> newCall(MethodDescriptor<Q, R> method, CallOptions options) {
                return (ClientCall<Q, R>) inner;
            }

            @Override
            public String authority() {
                return "";
            }
        };
        ClientCall<RenewRequest, RenewResponse> call =
                new LimitingClientInterceptor(gauge).interceptCall(Conn.RENEW, CallOptions.DEFAULT, channel);
        call.start(
                new ClientCall.Listener<>() {
                    @Override
                    public void onReady() {
                        if (call.isReady()) {
                            call.sendMessage(RenewRequest.getDefaultInstance());
                        }
                    }
                },
                new Metadata());
        eventually("a message is sent", () -> inner.sent.size() == 1);
    }

    /** Connects to a server that says that it accepts streams, and opens 100 resources. */
    private Client connectWithStreams(Function<RenewRequest, RenewResponse> renewals) {
        Client client = connect(4);
        server.offersStreams = true;
        server.renewals = renewals;
        for (int n = 0; n < 100; n++) {
            client.share("s" + n, 1);
        }
        return client;
    }

    @Test
    void streamsThatAProxyDoesNotPassAreReplacedByRequests() throws Exception {
        Client client = connectWithStreams(null);
        client.ready(Duration.ofSeconds(20));
        int before = server.asked.get();
        eventually("refreshes", () -> server.asked.get() >= before + 4);
        assertTrue(client.health().lastError().contains("refuses a stream of renewals"));
        assertEquals(0, client.renewalStream());
        assertEquals(0, client.health().failures());
        assertEquals(100, server.last.getResourceCount());
    }

    /** Grants 4 of what is stated, and once 1 instead of the renewal of a resource. */
    private final class Cutter {
        private final List<RenewRequest> received = new CopyOnWriteArrayList<>();
        private final AtomicInteger cut = new AtomicInteger(-1);

        private RenewResponse answer(RenewRequest request) {
            received.add(request);
            var response = RenewResponse.newBuilder().setSequence(request.getSequence());
            for (Entry entry : request.getEntryList()) {
                response.addGrant(grant(entry.getIndex(), 4));
            }
            int index = cut.get();
            boolean isRenewed = request.getRenewList().stream()
                    .anyMatch(range -> range.getFirst() <= index && index < range.getFirst() + range.getCount());
            if (isRenewed && cut.compareAndSet(index, -1)) {
                response.addGrant(grant(index, 1));
            }
            return response.build();
        }

        private Grant grant(int index, double capacity) {
            var response = ResourceResponse.newBuilder().setGets(server.lease(capacity, 1000 + received.size()));
            return Grant.newBuilder().setIndex(index).setResponse(response).build();
        }

        /** Returns the first entry of a resource in the messages from one on, or null. */
        private Entry stated(int from, String name) {
            return received.stream()
                    .skip(from)
                    .flatMap(request -> request.getEntryList().stream())
                    .filter(entry -> entry.getRequest().getResourceId().equals(name))
                    .findFirst()
                    .orElse(null);
        }
    }

    @Test
    void theFirstMessageAfterACutReportsWhatIsInUseBeyondTheLease() throws Exception {
        var cutter = new Cutter();
        Client client = connectWithStreams(cutter::answer);
        Gauge gauge = client.gauge("g", options -> options.wants(4));
        Permit permits = gauge.acquire(4, Duration.ofSeconds(20));
        eventually("it is on a stream", () -> cutter.stated(0, "g") != null);
        int before = cutter.received.size();
        cutter.cut.set(cutter.stated(0, "g").getIndex());
        eventually("the lease is cut", () -> gauge.capacity() == 1);
        eventually("the cut is confirmed", () -> cutter.stated(before, "g") != null);
        ResourceRequest confirmation = cutter.stated(before, "g").getRequest();
        assertEquals(1, confirmation.getHas().getCapacity());
        assertEquals(3, confirmation.getOutstanding());
        permits.close();
        assertEquals(0, client.stats().requestErrors());
    }
}
