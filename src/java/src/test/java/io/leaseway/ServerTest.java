package io.leaseway;

import static io.leaseway.TestServer.eventually;
import static io.leaseway.TestServer.sleep;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.TlsChannelCredentials;
import io.leaseway.TestServer.Template;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** With real servers. */
@Tag("e2e")
@Timeout(120)
class ServerTest {
    private final List<AutoCloseable> opened = new ArrayList<>();

    @AfterEach
    void closeAll() throws Exception {
        for (int i = opened.size() - 1; i >= 0; i--) {
            opened.get(i).close();
        }
    }

    private TestServer serve(Template template, String... flags) {
        return kept(TestServer.serve(template == null ? List.of() : List.of(template), flags));
    }

    private Client connect(String endpoint) {
        return connect(Client.builder(endpoint));
    }

    private Client connect(ClientBuilder builder) {
        return kept(builder.logger(Quiet.LOGGER).connect());
    }

    private <T extends AutoCloseable> T kept(T resource) {
        opened.add(resource);
        return resource;
    }

    private static void ready(Client client) throws InterruptedException {
        client.ready(Duration.ofSeconds(20));
    }

    @Test
    void aRateIsHeldToItsLease() throws Exception {
        Client client = connect(serve(new Template("searches", 200, 60, 1)).address);
        Rate searches = client.rate("searches");
        assertFalse(searches.tryAcquire(), "a permit without a lease");
        searches.acquire(1, Duration.ofSeconds(10));
        // A caller in a loop wants all of it within a few seconds.
        while (searches.limit() < 200) {
            searches.acquire();
        }
        long start = System.nanoTime();
        int passed = 0;
        while (System.nanoTime() - start < 2_000_000_000L) {
            searches.acquire();
            passed++;
        }
        double bound = (System.nanoTime() - start) / 1e9 * 200 + searches.burst() + 1;
        assertTrue(passed <= bound && passed > 200, passed + " permits in 2 s at 200 per second");
        assertEquals(Basis.LEASED, searches.basis());
        System.out.println(passed + " permits in 2 s at 200 per second");
    }

    @Test
    void aGaugeGivesPermitsAndReportsThoseInUseAfterACut() throws Exception {
        TestServer server = serve(new Template("jobs", 4, 60, 1));
        checkThatPermitsInUseAreKept(server, connect(server.address));
    }

    @Test
    void aGaugeOnAStreamReportsPermitsInUseAfterACut() throws Exception {
        TestServer server = serve(new Template("jobs", 4, 60, 1));
        Client client = connect(server.address);
        for (int n = 0; n < 100; n++) {
            client.share("s" + n, 1);
        }
        eventually("a stream", () -> client.renewalStream() != 0);
        long stream = client.renewalStream();
        checkThatPermitsInUseAreKept(server, client);
        assertEquals(stream, client.renewalStream());
    }

    private void checkThatPermitsInUseAreKept(TestServer server, Client client) throws Exception {
        Gauge jobs = client.gauge("jobs", options -> options.wants(4));
        List<Permit> permits = new ArrayList<>();
        for (int n = 0; n < 4; n++) {
            permits.add(jobs.acquire(1, Duration.ofSeconds(20)));
        }
        assertTrue(jobs.tryAcquire().isEmpty(), "a fifth permit");
        // Another client wants half. It gets nothing that is still in use.
        Gauge others = connect(server.address).gauge("jobs", options -> options.wants(4));
        eventually("the lease is cut", () -> jobs.capacity() == 2);
        // The cut is confirmed meanwhile, and both leases are refreshed.
        for (int n = 0; n < 50; n++) {
            assertTrue(others.tryAcquire().isEmpty(), "permits in use were given to another client");
            sleep(50);
        }
        for (Permit permit : permits) {
            permit.close();
            permit.close();
        }
        assertEquals(0, jobs.inUse());
        others.acquire(2, Duration.ofSeconds(20)).close();
    }

    @Test
    void modesDecideWhenAServerIsGoneAndBack() throws Exception {
        String address = TestServer.freeAddress();
        var template = new Template("r", 90, 3, 1, "5");
        TestServer server = serve(template, "--listen", address);
        Map<Mode, Double> fallbacks = Map.of(Mode.SAFE, 5.0, Mode.PESSIMISTIC, 0.0, Mode.OPTIMISTIC, 40.0);
        Map<Mode, Rate> rates = new HashMap<>();
        for (Mode mode : Mode.values()) {
            Client client = connect(Client.builder(address).mode(mode));
            rates.put(mode, client.rate("r", options -> options.wants(40)));
            ready(client);
        }
        server.kill();
        long killed = System.nanoTime();
        while (System.nanoTime() - killed < 500_000_000L) {
            rates.values().forEach(rate -> assertEquals(Basis.LEASED, rate.basis()));
            sleep(50);
        }
        for (Mode mode : Mode.values()) {
            eventually("the lease expires", () -> rates.get(mode).basis() == Basis.FALLBACK);
            assertEquals(fallbacks.get(mode), rates.get(mode).limit());
        }
        double expired = (System.nanoTime() - killed) / 1e9;
        assertTrue(expired < 6, "leases of 3 s were used for " + expired + " s");
        serve(template, "--listen", address);
        long back = System.nanoTime();
        rates.values().forEach(rate -> eventually("a new lease", () -> rate.basis() == Basis.LEASED));
        double renewed = (System.nanoTime() - back) / 1e9;
        assertTrue(renewed < 15, "new leases after " + renewed + " s");
        System.out.printf("leases ended after %.2f s; new leases %.2f s after the restart%n", expired, renewed);
    }

    @Test
    void hintsMoveCapacityInRoundTrips() throws Exception {
        TestServer server = serve(new Template("r", 100, 60, 30));
        Rate first = connect(server.address).rate("r", options -> options.wants(100));
        eventually("all of it", () -> first.limit() == 100);
        sleep(300); // the stream of hints is open
        long begun = System.nanoTime();
        Rate second = connect(server.address).rate("r", options -> options.wants(100));
        eventually("half of it", () -> first.limit() == 50 && second.limit() == 50);
        double took = (System.nanoTime() - begun) / 1e9;
        assertTrue(took < 15, "it took " + took + " s with a refresh interval of 30 s");
        System.out.printf("a change took %.2f s with a refresh interval of 30 s%n", took);
    }

    @Test
    void closingReleasesLeases() throws Exception {
        TestServer server = serve(new Template("r", 100, 60, 30));
        Client first = connect(server.address);
        Rate rate = first.rate("r", options -> options.wants(100));
        ready(first);
        CompletableFuture<Void> waiting = rate.acquireAsync(1_000_000);
        long begun = System.nanoTime();
        first.close();
        first.close();
        ExecutionException refused = assertThrows(ExecutionException.class, () -> waiting.get(5, TimeUnit.SECONDS));
        assertTrue(refused.getCause() instanceof ClosedException);
        Rate second = connect(server.address).rate("r", options -> options.wants(100));
        eventually("all of it", () -> second.limit() == 100);
        assertTrue(System.nanoTime() - begun < 15_000_000_000L);
        assertThrows(ClosedException.class, () -> first.rate("r"));
        // A handle releases its lease, too.
        second.close();
        Rate third = connect(server.address).rate("r", options -> options.wants(100));
        eventually("all of it", () -> third.limit() == 100);
    }

    /** Returns how many leases a server has renewed by streams, without a round; 0 if it does not answer. */
    private static double renewedInPlace(String web) {
        try {
            var request = HttpRequest.newBuilder(URI.create("http://" + web + "/metrics"));
            String metrics = HttpClient.newHttpClient()
                    .send(request.build(), BodyHandlers.ofString())
                    .body();
            String name = "leaseway_leases_renewed_in_place_total ";
            return metrics.lines()
                    .filter(line -> line.startsWith(name))
                    .mapToDouble(line -> Double.parseDouble(line.substring(name.length())))
                    .sum();
        } catch (IOException e) {
            return 0;
        } catch (InterruptedException e) {
            throw new AssertionError(e);
        }
    }

    @Test
    void manyLeasesAreRenewedByAStreamAndSurviveARestart() throws Exception {
        String address = TestServer.freeAddress();
        String web = TestServer.freeAddress();
        var template = new Template("r*", 100, 20, 1);
        TestServer server = serve(template, "--listen", address, "--http", web);
        Client client = connect(address);
        List<Rate> rates = new ArrayList<>();
        for (int n = 0; n < 150; n++) {
            rates.add(client.rate("r" + n, options -> options.wants(10)));
        }
        ready(client);
        eventually("a stream", () -> client.renewalStream() != 0);
        long stream = client.renewalStream();
        // Leases that are not renewed would be shorter than that by then.
        sleep(5000);
        eventually("all leases are renewed", () -> areFresh(rates));
        assertEquals(stream, client.renewalStream());
        double before = renewedInPlace(web);
        long messages = client.stats().requests();
        eventually("the server renews in place", () -> renewedInPlace(web) >= before + 300);
        System.out.printf(
                "%.0f leases renewed in place by %d messages%n",
                renewedInPlace(web) - before, client.stats().requests() - messages);
        rates.get(7).setWants(50);
        eventually("the changed demand is met", () -> rates.get(7).limit() == 50);
        rates.get(7).setWants(10);

        server.kill();
        serve(template, "--listen", address, "--http", web);
        eventually("another stream", () -> client.renewalStream() > stream);
        eventually("the server renews in place", () -> renewedInPlace(web) >= 300);
        sleep(5000);
        eventually("all leases are renewed", () -> areFresh(rates));
        assertEquals(0, client.stats().leasesEnded());
    }

    private static boolean areFresh(List<Rate> rates) {
        return rates.stream()
                .allMatch(rate -> rate.limit() == 10 && rate.leaseLeft().compareTo(Duration.ofSeconds(15)) > 0);
    }

    /** Three peers, whose master is killed. */
    @Test
    void aStreamGoesOnWithTheNextMaster(@TempDir Path data) throws Exception {
        List<TestServer> peers = TestServer.startPeers(List.of(new Template("r*", 100, 20, 1)), data);
        peers.forEach(this::kept);
        Client client = connect(peers.get(0).address);
        List<Rate> rates = new ArrayList<>();
        for (int n = 0; n < 150; n++) {
            rates.add(client.rate("r" + n, options -> options.wants(10)));
        }
        ready(client);
        eventually("it learns the peers", () -> client.health().endpoints().size() == 3);
        eventually("a stream", () -> client.renewalStream() != 0);
        eventually("all leases are renewed", () -> areFresh(rates));
        String master = client.health().server();
        long stream = client.renewalStream();
        peers.stream().filter(peer -> peer.address.equals(master)).forEach(TestServer::kill);
        long killed = System.nanoTime();
        eventually("a stream with the next master", () -> {
            assertTrue(areLeased(rates), "a lease has a gap");
            return !client.health().server().equals(master) && client.renewalStream() > stream;
        });
        double found = (System.nanoTime() - killed) / 1e9;
        long next = client.renewalStream();
        // Longer than the rest of the leases of the first master.
        while (System.nanoTime() - killed < 25_000_000_000L) {
            assertTrue(areLeased(rates), "a lease has a gap");
            sleep(5);
        }
        eventually("all leases are renewed", () -> areFresh(rates));
        assertEquals(next, client.renewalStream());
        assertEquals(0, client.stats().leasesEnded());
        System.out.printf("a stream with the next master after %.2f s%n", found);
    }

    private static boolean areLeased(List<Rate> rates) {
        return rates.stream().allMatch(rate -> rate.limit() == 10 && rate.basis() == Basis.LEASED);
    }

    /** Three peers, whose master is killed. */
    @Test
    void aFailoverKeepsLeasesAndServesNewcomers(@TempDir Path data) throws Exception {
        List<TestServer> peers = TestServer.startPeers(List.of(new Template("r", 99, 20, 1)), data);
        peers.forEach(this::kept);
        Client client = connect(peers.get(0).address);
        Rate rate = client.rate("r", options -> options.wants(60));
        ready(client);
        eventually("it learns the peers", () -> client.health().endpoints().size() == 3);
        String master = client.health().server();
        peers.stream().filter(peer -> peer.address.equals(master)).forEach(TestServer::kill);
        long killed = System.nanoTime();
        String[] others = peers.stream()
                .map(peer -> peer.address)
                .filter(address -> !address.equals(master))
                .toArray(String[]::new);
        Rate newcomer = connect(Client.builder(others)).rate("r", options -> options.wants(30));
        eventually("the newcomer has a lease", () -> newcomer.limit() > 0);
        double served = (System.nanoTime() - killed) / 1e9;
        eventually("the client has found the new master", () -> {
            Health health = client.health();
            return !health.server().equals(master) && health.failures() == 0;
        });
        double found = (System.nanoTime() - killed) / 1e9;
        assertEquals(Basis.LEASED, rate.basis());
        assertTrue(served < 20 && found < 20, served + " s, " + found + " s");
        System.out.printf("newcomer served after %.2f s, new master found after %.2f s%n", served, found);
    }

    @Test
    void tlsAndExplanations(@TempDir Path directory) throws Exception {
        String dir = directory.toString();
        TestServer.run("certs", "init", "--dir", dir);
        TestServer.run("certs", "issue", "server", "--host", "localhost,127.0.0.1", "--dir", dir);
        TestServer server = serve(null, "--tls-cert", dir + "/server.pem", "--tls-key", dir + "/server.key");
        var trusted = TlsChannelCredentials.newBuilder()
                .trustManager(directory.resolve("ca.pem").toFile())
                .build();
        Client client = connect(Client.builder("https://" + server.address).tls(trusted));
        client.rate("r", options -> options.wants(1));
        ready(client);

        String web = TestServer.freeAddress();
        TestServer clear = serve(null, "--http", web);
        Map<String, ClientBuilder> wrong = Map.of(
                "looks like the port of another service", Client.builder(web),
                "speaks TLS", Client.builder(server.address),
                "not signed by a trusted CA", Client.builder("https://" + server.address),
                "does not speak TLS", Client.builder("https://" + clear.address),
                "connection refused", Client.builder(TestServer.freeAddress()),
                "without TLS", Client.builder("192.0.2.1:5100").token("secret"));
        for (Map.Entry<String, ClientBuilder> entry : wrong.entrySet()) {
            Client failing = connect(entry.getValue());
            failing.rate("r", options -> options.wants(1));
            eventually("a request fails", () -> failing.health().failures() > 0);
            String error = failing.health().lastError();
            System.out.println(error);
            assertTrue(error.contains(entry.getKey()), error + " does not say " + entry.getKey());
            assertThrows(NotReadyException.class, () -> failing.ready(Duration.ofMillis(50)));
        }
    }

    @Test
    void theEnvironmentConfiguresTlsAndAToken(@TempDir Path directory) throws Exception {
        String dir = directory.toString();
        TestServer.run("certs", "init", "--dir", dir);
        TestServer.run("certs", "issue", "server", "--host", "localhost,127.0.0.1", "--dir", dir);
        TestServer.run("certs", "issue", "carol", "--dir", dir);
        String secret = "lwt_test";
        byte[] digest = MessageDigest.getInstance("SHA-256").digest(secret.getBytes());
        Path tokens = directory.resolve("tokens");
        Files.writeString(tokens, "alice sha256:" + HexFormat.of().formatHex(digest) + "\n");
        TestServer server = kept(TestServer.serveText(
                """
                resources:
                - identifier_glob: "*"
                  capacity: 100
                  algorithm: {kind: FAIR_SHARE, lease_length: 60, refresh_interval: 1, learning_mode_duration: 0}
                access:
                - {name: clients, who: ["alice", "carol"], may: ask, clients: "*"}
                """,
                ("--tls-cert DIR/server.pem --tls-key DIR/server.key --tls-ca DIR/ca.pem --tls-client-auth optional"
                                + " --tokens DIR/tokens")
                        .replace("DIR", dir)
                        .split(" ")));
        Map<String, String> variables = new HashMap<>();
        variables.put("LEASEWAY_SERVER", server.address);
        variables.put("LEASEWAY_TLS_CA", dir + "/ca.pem");
        // A client that proves nothing is denied. A certificate or a token proves who it is.
        Client anonymous = connect(Environment.builder(variables));
        anonymous.rate("r", options -> options.wants(1));
        eventually("it is denied", () -> anonymous.health().failures() > 0);
        System.out.println(anonymous.health().lastError());
        variables.put("LEASEWAY_TLS_CERT", dir + "/carol.pem");
        assertThrows(OptionException.class, () -> Environment.builder(variables));
        variables.put("LEASEWAY_TLS_KEY", dir + "/carol.key");
        Client carol = connect(Environment.builder(variables));
        carol.rate("r", options -> options.wants(1));
        ready(carol);
        variables.remove("LEASEWAY_TLS_CERT");
        variables.remove("LEASEWAY_TLS_KEY");
        Path file = Files.writeString(directory.resolve("token"), "wrong\n");
        variables.put("LEASEWAY_TOKEN_FILE", file.toString());
        Client alice = connect(Environment.builder(variables));
        alice.rate("r", options -> options.wants(1));
        eventually("the token is refused", () -> alice.health().lastError().contains("UNAUTHENTICATED"));
        Files.writeString(file, secret + "\n");
        ready(alice);
    }

    @Test
    void closedClientsLeaveNoThreads() throws Exception {
        TestServer server = serve(null);
        for (int n = 0; n < 5; n++) {
            Client client = connect(server.address);
            client.rate("r").acquire();
            client.close();
        }
        eventually(
                "all threads have ended",
                () -> Thread.getAllStackTraces().keySet().stream()
                        .noneMatch(thread -> thread.getName().equals("leaseway-client")));
        Thread.getAllStackTraces().keySet().stream()
                .filter(thread ->
                        thread.getName().contains("grpc") || thread.getName().contains("leaseway"))
                .forEach(thread -> assertTrue(thread.isDaemon(), thread.getName()));
    }

    /** Doorman's library lets 192 per second through at a capacity of 99. */
    @Test
    void workersInALoopPassTheCapacityAndNoMore() throws Exception {
        int capacity = 99;
        Client client = connect(serve(new Template("r", capacity, 60, 1)).address);
        Rate rate = client.rate("r");
        var passed = new AtomicInteger();
        List<Thread> workers = new ArrayList<>();
        for (int n = 0; n < 64; n++) {
            var worker = new Thread(() -> {
                try {
                    while (true) {
                        rate.acquire();
                        passed.incrementAndGet();
                    }
                } catch (InterruptedException e) {
                    // The test is over.
                }
            });
            worker.start();
            workers.add(worker);
        }
        eventually("the whole capacity", () -> rate.limit() == capacity);
        long begun = System.nanoTime();
        int before = passed.get();
        sleep(4000);
        double count = passed.get() - before;
        double took = (System.nanoTime() - begun) / 1e9;
        for (Thread worker : workers) {
            worker.interrupt();
            worker.join();
        }
        System.out.printf("%.1f per second at a capacity of %d%n", count / took, capacity);
        assertTrue(count <= capacity * took + rate.burst() + 1 && count > 0.5 * capacity * took);
    }
}
