package io.leaseway;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadFactory;
import java.util.stream.IntStream;

/**
 * The cost of a permit and of waiting callers.
 *
 * <pre>mvn test-compile exec:exec</pre>
 */
public final class Benchmark {
    private static final int PERMITS = 5_000_000;
    private static final int WAITERS = 50_000;
    private static final int ROUNDS = 3;

    private Benchmark() {}

    /** An operation that is repeated. */
    private interface Operation {
        void run() throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        permits();
        picks();
        waiters("futures", Benchmark::waitInFutures);
        ThreadFactory virtual = virtualThreads();
        if (virtual != null) {
            waiters("virtual threads", (rate, served) -> waitInThreads(virtual, rate, served));
        }
        idleClients();
    }

    private static Client connect(FakeServer server) {
        return Client.builder(server.address).logger(Quiet.LOGGER).connect();
    }

    private static void permits() throws Exception {
        try (var server = new FakeServer(1e9);
                Client client = connect(server)) {
            Rate rate = client.rate("r", options -> options.wants(1e9));
            Gauge gauge = client.gauge("g", options -> options.wants(1e9));
            client.ready(Duration.ofSeconds(10));
            TestServer.sleep(100);
            for (int round = 1; round <= ROUNDS; round++) {
                measure("tryAcquire", rate::tryAcquire);
                measure("acquire without waiting", rate::acquire);
                measure("acquire and close", () -> gauge.acquire().close());
            }
        }
    }

    /** The cost of a pick among backends with different weights. */
    private static void picks() throws Exception {
        for (int backends : new int[] {4, 64}) {
            Balancer<Integer> balancer = Balancer.weighted(IntStream.rangeClosed(1, backends)
                    .mapToObj(n -> new Balancer.Weighted<>(n, n))
                    .toList());
            for (int round = 1; round <= ROUNDS; round++) {
                long begun = System.nanoTime();
                int picks = PERMITS / 10 / backends;
                for (int n = 0; n < picks; n++) {
                    balancer.pick();
                }
                System.out.printf("pick among %d: %.0f ns%n", backends, (double) (System.nanoTime() - begun) / picks);
            }
        }
    }

    private static void measure(String name, Operation operation) throws Exception {
        long begun = System.nanoTime();
        for (int n = 0; n < PERMITS; n++) {
            operation.run();
        }
        System.out.printf("%s: %.0f ns%n", name, (double) (System.nanoTime() - begun) / PERMITS);
    }

    /** Starts callers that wait for a permit. */
    private interface Callers {
        void start(Rate rate, CountDownLatch served);
    }

    /** Lets callers wait, and then serves them at 100,000 permits per second, which takes half a second at least. */
    private static void waiters(String name, Callers callers) throws Exception {
        for (int round = 1; round <= ROUNDS; round++) {
            try (var server = new FakeServer(0);
                    Client client = connect(server)) {
                Rate rate = client.rate("r", options -> options.wants(100_000));
                client.ready(Duration.ofSeconds(10));
                var served = new CountDownLatch(WAITERS);
                long before = memory();
                long begun = System.nanoTime();
                callers.start(rate, served);
                while (client.stats().resources().get(0).waiting() < WAITERS) {
                    TestServer.sleep(1);
                }
                double queued = (double) (System.nanoTime() - begun) / WAITERS;
                long bytes = (memory() - before) / WAITERS;
                server.capacity = 100_000;
                while (rate.limit() == 0) {
                    TestServer.sleep(1);
                }
                begun = System.nanoTime();
                served.await();
                System.out.printf(
                        "%d waiters as %s: %.0f ns and %d bytes each, served in %.2f s%n",
                        WAITERS, name, queued, bytes, (System.nanoTime() - begun) / 1e9);
            }
        }
    }

    private static void waitInFutures(Rate rate, CountDownLatch served) {
        for (int n = 0; n < WAITERS; n++) {
            rate.acquireAsync().thenRun(served::countDown);
        }
    }

    private static void waitInThreads(ThreadFactory factory, Rate rate, CountDownLatch served) {
        for (int n = 0; n < WAITERS; n++) {
            factory.newThread(() -> {
                        try {
                            rate.acquire();
                            served.countDown();
                        } catch (InterruptedException e) {
                            throw new AssertionError(e);
                        }
                    })
                    .start();
        }
    }

    /** Returns a factory of virtual threads, or null before Java 21. */
    private static ThreadFactory virtualThreads() {
        try {
            Object builder = Thread.class.getMethod("ofVirtual").invoke(null);
            return (ThreadFactory) Class.forName("java.lang.Thread$Builder")
                    .getMethod("factory")
                    .invoke(builder);
        } catch (ReflectiveOperationException e) {
            return null;
        }
    }

    /** The memory of a client with one lease. */
    private static void idleClients() throws Exception {
        int count = 200;
        try (var server = new FakeServer(1)) {
            long before = memory();
            List<Client> clients = new ArrayList<>();
            for (int n = 0; n < count; n++) {
                Client client = connect(server);
                client.rate("r", options -> options.wants(1));
                clients.add(client);
            }
            for (Client client : clients) {
                client.ready(Duration.ofSeconds(10));
            }
            System.out.printf("idle client: %d bytes of heap, and a thread%n", (memory() - before) / count);
            CompletableFuture.allOf(clients.stream()
                            .map(client -> CompletableFuture.runAsync(client::close))
                            .toArray(CompletableFuture[]::new))
                    .join();
        }
    }

    private static long memory() {
        for (int n = 0; n < 3; n++) {
            System.gc();
            TestServer.sleep(20);
        }
        return Runtime.getRuntime().totalMemory() - Runtime.getRuntime().freeMemory();
    }
}
