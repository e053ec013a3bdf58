package io.leaseway;

import static io.leaseway.TestServer.eventually;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import io.leaseway.Balancer.Pick;
import io.leaseway.Balancer.Weighted;
import io.leaseway.TestServer.Template;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class BalancerTest {
    private static final Duration PATIENCE = Duration.ofSeconds(20);

    private final List<AutoCloseable> opened = new ArrayList<>();

    @AfterEach
    void closeAll() throws Exception {
        for (int i = opened.size() - 1; i >= 0; i--) {
            opened.get(i).close();
        }
    }

    private static JsonObject testdata(String file) {
        try {
            return JsonParser.parseString(Files.readString(Path.of("../go/internal/balancer/testdata", file)))
                    .getAsJsonObject();
        } catch (IOException e) {
            throw new AssertionError(e);
        }
    }

    private static Stream<JsonElement> stream(JsonElement array) {
        return array == null ? Stream.empty() : StreamSupport.stream(((JsonArray) array).spliterator(), false);
    }

    private static String picks(Balancer<String> balancer, int count) {
        var picked = new StringBuilder();
        for (int n = 0; n < count; n++) {
            picked.append(balancer.pick().map(Pick::backend).orElse("-"));
        }
        return picked.toString();
    }

    /** The file describes its fields. The Rust, the Go, the Python and the TypeScript client replay it, too. */
    @TestFactory
    Stream<DynamicTest> sequencesOfTheOtherClients() {
        return stream(testdata("balancer.json").get("scenarios")).map(element -> {
            JsonObject scenario = element.getAsJsonObject();
            return DynamicTest.dynamicTest(scenario.get("name").getAsString(), () -> replayScenario(scenario));
        });
    }

    private static void replayScenario(JsonObject scenario) {
        double[] capacities = stream(scenario.get("capacities"))
                .mapToDouble(JsonElement::getAsDouble)
                .toArray();
        long[] weights = scenario.has("weights")
                ? stream(scenario.get("weights"))
                        .mapToLong(JsonElement::getAsLong)
                        .toArray()
                : new long[capacities.length];
        long seconds = scenario.has("retry") ? scenario.get("retry").getAsLong() : 60;
        List<String> names = IntStream.range(0, weights.length)
                .mapToObj(index -> String.valueOf((char) ('a' + index)))
                .toList();
        // The clock overflows meanwhile.
        var now = new AtomicLong(Long.MAX_VALUE - 1_000_000_000);
        var balancer = new Balancer<>(names, weights, Duration.ofSeconds(seconds), now::get);
        for (int index = 0; index < capacities.length; index++) {
            balancer.setCapacity(index, capacities[index]);
        }
        for (JsonElement step : scenario.getAsJsonArray("steps")) {
            take(balancer, step.getAsJsonArray(), now);
        }
    }

    private static void take(Balancer<String> balancer, JsonArray step, AtomicLong now) {
        JsonElement first = step.get(1);
        int index = first.isJsonPrimitive() ? balancer.backends().indexOf(first.getAsString()) : -1;
        String what = step.toString();
        switch (step.get(0).getAsString()) {
            case "pick" ->
                assertEquals(
                        first.getAsString(), picks(balancer, first.getAsString().length()), what);
            case "where" -> {
                var asked = new StringBuilder();
                Optional<Pick<String>> picked = balancer.pickWhere(name -> {
                    asked.append(name);
                    return !first.getAsString().contains(name);
                });
                assertEquals(step.get(2).getAsString(), asked.toString(), what);
                assertEquals(
                        step.get(3).getAsString(), picked.map(Pick::backend).orElse("-"), what);
            }
            case "sticky" ->
                assertEquals(
                        step.get(2).getAsBoolean(), balancer.pickSticky(index).isPresent(), what);
            case "capacity" ->
                balancer.setCapacity(
                        index,
                        step.get(2).getAsJsonPrimitive().isString()
                                ? Double.POSITIVE_INFINITY
                                : step.get(2).getAsDouble());
            case "weight" -> balancer.setWeight(index, step.get(2).getAsLong());
            case "pause" -> balancer.pause(index);
            case "resume" -> balancer.resume(index);
            case "fail" -> balancer.failed(index);
            case "advance" -> now.addAndGet(first.getAsLong() * 1_000_000);
            case "enabled" -> {
                var enabled = new StringBuilder();
                for (int i = 0; i < balancer.backends().size(); i++) {
                    enabled.append(balancer.isEnabled(i) ? balancer.backends().get(i) : "");
                }
                assertEquals(first.getAsString(), enabled.toString(), what);
            }
            case "next_retry" ->
                assertEquals(
                        first.isJsonNull() ? Optional.empty() : Optional.of(Duration.ofMillis(first.getAsLong())),
                        balancer.nextRetry(),
                        what);
            default -> throw new AssertionError(what);
        }
    }

    /** Those with operations that a balancer lacks are left out. */
    @Test
    void documentedVectors() {
        List<JsonObject> vectors = stream(testdata("byrequests.json").get("vectors"))
                .map(JsonElement::getAsJsonObject)
                .filter(vector -> !vector.has("initial_lbstatus")
                        && stream(vector.get("events"))
                                .allMatch(event -> List.of("disable", "enable", "force")
                                        .contains(event.getAsJsonObject()
                                                .get("op")
                                                .getAsString())))
                .toList();
        assertTrue(vectors.size() >= 15, vectors.size() + " vectors");
        vectors.forEach(BalancerTest::replayVector);
    }

    private static void replayVector(JsonObject vector) {
        var backends = new ArrayList<Weighted<String>>();
        var disabled = new ArrayList<Integer>();
        for (JsonElement element : vector.getAsJsonArray("members")) {
            JsonObject member = element.getAsJsonObject();
            if (member.has("enabled") && !member.get("enabled").getAsBoolean()) {
                disabled.add(backends.size());
            }
            backends.add(new Weighted<>(
                    member.get("name").getAsString(), member.get("lbfactor").getAsLong()));
        }
        Balancer<String> balancer = Balancer.weighted(backends);
        disabled.forEach(balancer::pause);
        var picked = new ArrayList<String>();
        for (int number = 0; number < vector.get("picks_count").getAsInt(); number++) {
            picked.add(pickOf(vector, number, balancer).map(Pick::backend).orElse(null));
        }
        JsonElement expected = vector.has("first_picks") ? vector.get("first_picks") : vector.get("picks");
        var names = new ArrayList<String>();
        stream(expected).forEach(name -> names.add(name.isJsonNull() ? null : name.getAsString()));
        assertEquals(names, picked.subList(0, names.size()), vector.get("id").getAsString());
        Map<String, Integer> counts = new HashMap<>();
        picked.forEach(name -> counts.merge(String.valueOf(name), 1, Integer::sum));
        vector.getAsJsonObject("counts")
                .entrySet()
                .forEach(entry -> assertEquals(entry.getValue().getAsInt(), counts.getOrDefault(entry.getKey(), 0)));
    }

    private static Optional<Pick<String>> pickOf(JsonObject vector, int number, Balancer<String> balancer) {
        int forced = -1;
        for (JsonElement element : stream(vector.get("events")).toList()) {
            JsonObject event = element.getAsJsonObject();
            if (event.get("before_pick").getAsInt() == number) {
                int index = balancer.backends().indexOf(event.get("member").getAsString());
                switch (event.get("op").getAsString()) {
                    case "disable" -> balancer.pause(index);
                    case "enable" -> balancer.resume(index);
                    default -> forced = index;
                }
            }
        }
        return forced < 0 ? balancer.pick() : balancer.pickSticky(forced);
    }

    @Test
    void argumentsAreChecked() {
        Balancer<String> balancer = Balancer.weighted(List.of(new Weighted<>("a", 2), new Weighted<>("b", 1)));
        assertThrows(IllegalArgumentException.class, () -> balancer.setWeight(0, -1));
        assertThrows(IllegalArgumentException.class, () -> balancer.setWeight(0, 1L << 32));
        assertThrows(IndexOutOfBoundsException.class, () -> balancer.pause(2));
        assertThrows(
                IllegalStateException.class,
                () -> balancer.pickWhere(name -> {
                    throw new IllegalStateException("on purpose");
                }));
        assertEquals("abaaba", picks(balancer, 6));
        balancer.setCapacity(0, Double.NaN);
        assertFalse(balancer.isEnabled(0));
    }

    @Test
    void concurrentPicksKeepExactShares() throws Exception {
        Balancer<String> balancer = Balancer.weighted(List.of(new Weighted<>("a", 7), new Weighted<>("b", 3)));
        var all = new ArrayList<CompletableFuture<String>>();
        for (int n = 0; n < 4; n++) {
            all.add(CompletableFuture.supplyAsync(() -> picks(balancer, 1000)));
        }
        long count = 0;
        for (CompletableFuture<String> one : all) {
            count += one.get().chars().filter(name -> name == 'a').count();
        }
        assertEquals(2800, count);
    }

    private <T extends AutoCloseable> T kept(T resource) {
        opened.add(resource);
        return resource;
    }

    private Client connect(String address) {
        return kept(Client.builder(address)
                .mode(Mode.PESSIMISTIC)
                .deadline(Duration.ofSeconds(1))
                .logger(Quiet.LOGGER)
                .connect());
    }

    private static Rate rate(Client client, String name) {
        return client.rate(name, options -> options.wants(1000));
    }

    private static String turns(Balanced search, int count) throws InterruptedException, TimeoutException {
        var picked = new StringBuilder();
        for (int n = 0; n < count; n++) {
            picked.append(search.acquire(PATIENCE).backend().name());
        }
        return picked.toString();
    }

    private static CompletableFuture<String> turn(Balanced search) {
        return CompletableFuture.supplyAsync(() -> {
            try {
                return search.acquire().backend().name();
            } catch (InterruptedException e) {
                throw new AssertionError(e);
            }
        });
    }

    private static void assertClosed(CompletableFuture<String> turn) {
        Throwable failed = assertThrows(ExecutionException.class, turn::get);
        assertEquals(ClosedException.class, failed.getCause().getClass());
    }

    @Test
    @Tag("e2e")
    void sharesFollowTheLeases() throws Exception {
        TestServer server =
                kept(TestServer.serve(List.of(new Template("a", 700, 60, 1), new Template("b", 300, 60, 1))));
        Client client = connect(server.address);
        Balanced search = kept(new Balanced(List.of(rate(client, "a"), rate(client, "b"))));
        eventually(
                "both leases",
                () -> search.balancer().isEnabled(0) && search.balancer().isEnabled(1));
        assertEquals("abaaabaabaabaaabaaba", turns(search, 20));
        search.acquire().failed();
        assertEquals("bbbbb", turns(search, 5));
        search.failed(1);
        // Without a backend, callers wait until the client is closed.
        CompletableFuture<String> waiting = turn(search);
        client.close();
        assertClosed(waiting);
    }

    @Test
    void aBackendThatLosesItsLeaseIsLeftByThoseWhoWaitThere() throws Exception {
        FakeServer first = kept(new FakeServer(0.001));
        FakeServer second = kept(new FakeServer(0));
        Client slow = connect(first.address);
        Balanced search = kept(new Balanced(List.of(rate(slow, "a"), rate(connect(second.address), "b"))));
        eventually("a lease", () -> search.balancer().isEnabled(0));
        CompletableFuture<String> waiting = turn(search);
        eventually("a caller waits", () -> slow.stats().resources().get(0).waiting() == 1);
        first.capacity = 0;
        eventually("the lease is cut", () -> !search.balancer().isEnabled(0));
        eventually("the caller leaves", () -> slow.stats().resources().get(0).waiting() == 0);
        second.capacity = 1000;
        assertEquals("b", waiting.get());
    }

    @Test
    void waitsForABackendEnd() throws Exception {
        FakeServer server = kept(new FakeServer(1000));
        Client client = connect(server.address);
        Balanced search = kept(new Balanced(List.of(rate(client, "a")), Duration.ofMillis(50)));
        eventually("a lease", () -> search.balancer().isEnabled(0));
        search.failed(0);
        assertEquals("a", turns(search, 1));
        search.balancer().pause(0);
        assertThrows(TimeoutException.class, () -> search.acquire(Duration.ofMillis(20)));
        CompletableFuture<String> resumed = turn(search);
        search.balancer().resume(0);
        assertEquals("a", resumed.get());
        search.balancer().pause(0);
        CompletableFuture<String> waiting = turn(search);
        search.close();
        search.close();
        assertClosed(waiting);
        assertTrue(client.stats().resources().isEmpty());
    }

    @Test
    void waitsThatTimeOutLeaveNothingBehind() throws Exception {
        FakeServer server = kept(new FakeServer(1));
        server.isSilent = true;
        Client client = connect(server.address);
        Rate rate = rate(client, "a");
        Balanced search = kept(new Balanced(List.of(rate)));
        for (int n = 0; n < 100; n++) {
            assertThrows(TimeoutException.class, () -> search.acquire(Duration.ZERO));
            assertThrows(NotReadyException.class, () -> rate.ready(Duration.ZERO));
        }
        assertEquals(0, search.balancer().changed().getNumberOfDependents());
        // The balancer follows it.
        assertEquals(1, rate.opened.current().changed().getNumberOfDependents());
    }

    @Test
    void aBackOffMayEndWhileAWaitForItBegins() throws Exception {
        FakeServer server = kept(new FakeServer(1000));
        Rate only = rate(connect(server.address), "a");
        only.ready(PATIENCE);
        // Time passes between two readings of the clock, as when a thread is preempted.
        for (long step : new long[] {7, 10, 14, 20, 26, 33, 49}) {
            var now = new AtomicLong();
            var search = new Balanced(
                    List.of(only), Duration.ofMillis(50), () -> now.addAndGet(TimeUnit.MILLISECONDS.toNanos(step)));
            search.failed(0);
            assertEquals("a", turns(search, 1), "steps of " + step + " ms");
        }
    }

    @Test
    void waitsEndWhenBackendsAreClosedBeforeTheirFirstLease() throws Exception {
        FakeServer server = kept(new FakeServer(1));
        server.isSilent = true;
        Client client = connect(server.address);
        var rates = List.of(rate(client, "a"), rate(client, "b"));
        CompletableFuture<String> waiting = turn(kept(new Balanced(rates)));
        rates.get(0).close();
        assertClosed(waiting);
        CompletableFuture<String> other = turn(kept(new Balanced(List.of(rates.get(1)))));
        client.close();
        assertClosed(other);
    }

    @Test
    void wantsMustBeSet() {
        Client client = connect(kept(new FakeServer(1)).address);
        assertThrows(OptionException.class, () -> new Balanced(List.of(client.rate("r"))));
    }
}
