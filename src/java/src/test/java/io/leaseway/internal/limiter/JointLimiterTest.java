package io.leaseway.internal.limiter;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.gson.JsonPrimitive;
import io.leaseway.ClosedException;
import io.leaseway.internal.limiter.JointLimiter.Part;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.SplittableRandom;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;

/** Permits of several limits at once. */
class JointLimiterTest {
    private static final long MS = 1_000_000;
    private static final long FOREVER = Limiter.FOREVER;

    private static RateLimiter rate(Burst burst) {
        return new RateLimiter(System.nanoTime(), burst, Bucket.DEFAULT_MAX_DEBT, () -> {}, ForkJoinPool.commonPool());
    }

    private static GaugeLimiter gauge() {
        return new GaugeLimiter(System.nanoTime(), () -> {}, ForkJoinPool.commonPool());
    }

    private static final class Caller {
        final long[] needs;
        /** Null if it was admitted at once. */
        Ticket ticket;
        /** It has returned its permits, or has given up. */
        boolean isDone;

        Caller(long[] needs) {
            this.needs = needs;
        }

        boolean isAdmitted() {
            return ticket == null || ticket.state == Ticket.State.ADMITTED;
        }

        boolean holds() {
            return isAdmitted() && !isDone;
        }

        boolean waits() {
            return !isAdmitted() && !isDone;
        }
    }

    /** Callers of several limits in virtual time, without locks. */
    private static final class Crowd {
        final List<Limiter> limits;
        final List<Caller> callers = new ArrayList<>();
        long now;

        Crowd(Limiter... limits) {
            this.limits = List.of(limits);
        }

        private long[] nows(int count) {
            var nows = new long[count];
            Arrays.fill(nows, now);
            return nows;
        }

        /** Advances tickets until no more can be admitted. */
        private void settle() {
            for (; ; ) {
                var tickets = new ArrayList<Ticket>();
                for (Limiter limit : limits) {
                    limit.queue.takeResolved();
                    tickets.addAll(limit.queue.takeAdvanced());
                }
                if (tickets.isEmpty()) {
                    return;
                }
                tickets.forEach(ticket -> ticket.advance(nows(ticket.slots.size())));
            }
        }

        void pass(long millis) {
            for (long end = now + millis * MS; now < end; ) {
                now += MS;
                limits.forEach(limit -> limit.queue.tick(now));
                settle();
            }
        }

        private JointLimiter joint(long[] needs) {
            return new JointLimiter(IntStream.range(0, needs.length)
                    .mapToObj(i -> new Part(limits.get(i), needs[i]))
                    .toList());
        }

        private int needed(long[] needs) {
            return (int) Arrays.stream(needs).filter(n -> n > 0).count();
        }

        Caller join(long... needs) {
            var caller = new Caller(needs);
            callers.add(caller);
            caller.ticket = joint(needs).join(nows(needed(needs)), () -> {});
            settle();
            return caller;
        }

        /** Takes permits and returns those of gauges, or says why not. */
        Refusal tryAcquire(long... needs) {
            Refusal refusal = joint(needs).decide(nows(needed(needs)), List.of());
            if (refusal == null) {
                giveBack(needs);
            }
            settle();
            return refusal;
        }

        private void giveBack(long[] needs) {
            for (int i = 0; i < needs.length; i++) {
                if (limits.get(i).queue.meter() instanceof Count count) {
                    count.giveBack(needs[i]);
                    limits.get(i).queue.admit(now);
                }
            }
        }

        void release(Caller caller) {
            if (caller.holds()) {
                caller.isDone = true;
                giveBack(caller.needs);
                settle();
            }
        }

        void leave(Caller caller) {
            if (caller.waits()) {
                caller.isDone = true;
                caller.ticket.cancel(nows(caller.ticket.slots.size()));
                settle();
            }
        }

        void setCapacity(int limit, double capacity) {
            limits.get(limit).queue.setCapacity(now, capacity, Meter.NEVER, 0);
            settle();
        }

        void charge(int limit, long n) {
            FairQueue queue = limits.get(limit).queue;
            queue.arrive(((Bucket) queue.meter()).charge(now, n));
            queue.admit(now);
            settle();
        }

        /** For each limit: permits taken of a rate or in use of a gauge, and permits that callers wait for. */
        long[][] permits() {
            return limits.stream()
                    .map(limit -> limit.queue)
                    .map(queue -> new long[] {
                        queue.meter() instanceof Count count
                                ? count.inUse()
                                : queue.meter().taken(),
                        queue.waiting() + queue.reserved()
                    })
                    .toArray(long[][]::new);
        }
    }

    private static Stream<JsonElement> stream(JsonElement array) {
        return StreamSupport.stream(((JsonArray) array).spliterator(), false);
    }

    private static long[] numbers(JsonElement array) {
        return stream(array).mapToLong(JsonElement::getAsLong).toArray();
    }

    /** The file describes its fields. The other clients replay it, too. */
    @TestFactory
    Stream<DynamicTest> scenariosOfTheOtherClients() throws IOException {
        String text = Files.readString(Path.of("../go/internal/limiter/testdata/limits.json"));
        return stream(JsonParser.parseString(text).getAsJsonObject().get("scenarios"))
                .map(JsonElement::getAsJsonObject)
                .map(scenario -> DynamicTest.dynamicTest(scenario.get("name").getAsString(), () -> replay(scenario)));
    }

    private static void replay(JsonObject scenario) {
        var crowd = new Crowd(stream(scenario.get("limits"))
                .map(limit ->
                        limit.getAsJsonPrimitive().isNumber() ? rate(Burst.permits(limit.getAsDouble())) : gauge())
                .toArray(Limiter[]::new));
        var told = new HashSet<Caller>();
        int number = 0;
        for (JsonElement element : scenario.getAsJsonArray("steps")) {
            JsonArray step = element.getAsJsonArray();
            assertEquals(step.toString(), take(crowd, step, told).toString(), "step " + number++);
        }
    }

    /** Takes a step. Returns it with its result. */
    private static JsonArray take(Crowd crowd, JsonArray step, Set<Caller> told) {
        var result = new JsonArray();
        result.add(step.get(0));
        switch (step.get(0).getAsString()) {
            case "capacity" ->
                crowd.setCapacity(
                        step.get(1).getAsInt(),
                        step.get(2).getAsJsonPrimitive().isString()
                                ? Double.POSITIVE_INFINITY
                                : step.get(2).getAsDouble());
            case "join" -> crowd.join(numbers(step.get(1)));
            case "leave" -> crowd.leave(crowd.callers.get(step.get(1).getAsInt()));
            case "release" -> crowd.release(crowd.callers.get(step.get(1).getAsInt()));
            case "release-all" ->
                crowd.callers.stream().filter(Caller::isAdmitted).toList().forEach(crowd::release);
            case "try" -> {
                result.add(step.get(1));
                result.add(outcome(crowd.tryAcquire(numbers(step.get(1)))));
                return result;
            }
            case "charge" -> crowd.charge(step.get(1).getAsInt(), step.get(2).getAsLong());
            case "advance" -> crowd.pass(step.get(1).getAsLong());
            case "admitted" -> {
                var admitted = new JsonArray();
                for (int i = 0; i < crowd.callers.size(); i++) {
                    if (crowd.callers.get(i).isAdmitted() && told.add(crowd.callers.get(i))) {
                        admitted.add(i);
                    }
                }
                result.add(admitted);
                return result;
            }
            case "permits" -> {
                var permits = new JsonArray();
                for (long[] limit : crowd.permits()) {
                    var pair = new JsonArray();
                    pair.add(limit[0]);
                    pair.add(limit[1]);
                    permits.add(pair);
                }
                result.add(permits);
                return result;
            }
            default -> throw new AssertionError("unknown step " + step);
        }
        return step;
    }

    private static JsonElement outcome(Refusal refusal) {
        if (refusal == null) {
            return new JsonPrimitive("taken");
        }
        var outcome = new JsonArray();
        outcome.add(refusal.index());
        if (refusal.burst() > 0) {
            outcome.add("too-many");
            outcome.add(refusal.burst());
            return outcome;
        }
        outcome.add("not-now");
        outcome.add(
                refusal.retryAfter() == Meter.UNKNOWN
                        ? JsonNull.INSTANCE
                        : new JsonPrimitive(refusal.retryAfter() / 1e6));
        return outcome;
    }

    /** A hundred callers of two rates and two gauges, with random histories. */
    @Test
    void nothingIsLostAndARefusalTakesNothing() {
        for (int seed = 0; seed < 50; seed++) {
            new History(seed).run();
        }
    }

    private static final class History {
        private final SplittableRandom random;
        private final String what;
        private final Crowd crowd = new Crowd(rate(Burst.permits(10)), rate(Burst.SMOOTH), gauge(), gauge());
        /** What the rates have admitted. */
        private final long[] taken = new long[4];

        private final Set<Caller> counted = new HashSet<>();

        History(int seed) {
            random = new SplittableRandom(seed);
            what = "seed " + seed;
        }

        void run() {
            for (int i = 0; i < 4; i++) {
                crowd.setCapacity(i, i < 2 ? random.nextDouble(1, 40) : random.nextInt(9, 14));
            }
            while (crowd.callers.size() < 100) {
                step();
                check();
            }
            for (int i = 0; i < 4; i++) {
                crowd.setCapacity(i, 12);
            }
            // Every caller is served, if permits of gauges come back.
            for (int turn = 0; turn < 300; turn++) {
                crowd.callers.forEach(crowd::release);
                crowd.pass(100);
                check();
            }
            assertTrue(crowd.callers.stream().allMatch(caller -> caller.isDone), what);
            assertTrue(Arrays.stream(crowd.permits()).allMatch(permits -> permits[1] == 0), what);
        }

        private void step() {
            switch (random.nextInt(6)) {
                case 0, 1 -> crowd.join(needs());
                case 2 -> {
                    if (!crowd.callers.isEmpty()) {
                        Caller caller = crowd.callers.get(random.nextInt(crowd.callers.size()));
                        crowd.leave(caller);
                        crowd.release(caller);
                    }
                }
                case 3 -> {
                    long[][] before = crowd.permits();
                    long[] wanted = needs();
                    if (crowd.tryAcquire(wanted) == null) {
                        take(wanted);
                    } else {
                        assertTrue(Arrays.deepEquals(before, crowd.permits()), what);
                    }
                }
                case 4 -> {
                    if (random.nextInt(8) == 0) {
                        crowd.setCapacity(random.nextInt(4), 6 * random.nextInt(3));
                    }
                }
                default -> crowd.pass(random.nextInt(200));
            }
        }

        private long[] needs() {
            long[] needs;
            do {
                needs = IntStream.range(0, 4)
                        .mapToLong(i -> random.nextInt(3) == 0 ? 0 : random.nextInt(4))
                        .toArray();
                if (random.nextInt(7) == 0) {
                    needs[random.nextInt(4)] = 9;
                }
            } while (Arrays.stream(needs).sum() == 0);
            return needs;
        }

        private void take(long[] permits) {
            for (int i = 0; i < 4; i++) {
                taken[i] += permits[i];
            }
        }

        private void check() {
            for (Caller caller : crowd.callers) {
                if (caller.isAdmitted() && counted.add(caller)) {
                    take(caller.needs);
                }
            }
            long[][] permits = crowd.permits();
            for (int limit = 0; limit < 4; limit++) {
                int at = limit;
                long held = crowd.callers.stream()
                        .filter(Caller::holds)
                        .mapToLong(caller -> caller.needs[at])
                        .sum();
                long wanted = crowd.callers.stream()
                        .filter(Caller::waits)
                        .mapToLong(caller -> caller.needs[at])
                        .sum();
                assertEquals(limit < 2 ? taken[limit] : held, permits[limit][0], what);
                assertEquals(wanted, permits[limit][1], what);
            }
        }
    }

    /** A hundred threads take permits of four limits, in real time. */
    @Test
    void threadsNeitherDeadlockNorLosePermits() throws Exception {
        List<RateLimiter> rates = List.of(rate(Burst.permits(100)), rate(Burst.SMOOTH));
        List<GaugeLimiter> gauges = List.of(gauge(), gauge());
        for (int i = 0; i < 2; i++) {
            rates.get(i).setUsable(100_000, Meter.NEVER, 0, -1);
            gauges.get(i).setUsable(5 + i, Meter.NEVER, 0);
        }
        var taken = List.of(new AtomicLong(), new AtomicLong());
        var failures = new ArrayList<Throwable>();
        var threads = new ArrayList<Thread>();
        for (int i = 0; i < 100; i++) {
            int index = i;
            var parts = new ArrayList<>(List.of(
                    new Part(rates.get(0), i % 3), new Part(gauges.get(0), i % 4),
                    new Part(gauges.get(1), 2), new Part(rates.get(1), i % 5)));
            java.util.Collections.rotate(parts, i);
            var joint = new JointLimiter(parts);
            Runnable used = () -> {
                joint.release();
                taken.get(0).addAndGet(index % 3);
                taken.get(1).addAndGet(index % 5);
            };
            var thread = new Thread(() -> {
                try {
                    for (int turn = 0; turn < 40; turn++) {
                        turn(joint, turn + index, used);
                    }
                } catch (InterruptedException | ExecutionException | TimeoutException | RuntimeException e) {
                    synchronized (failures) {
                        failures.add(e);
                    }
                }
            });
            threads.add(thread);
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        assertEquals(List.of(), failures);
        for (int i = 0; i < 2; i++) {
            assertEquals(0, gauges.get(i).inUse());
            assertEquals(0, gauges.get(i).waiting());
            assertTrue(gauges.get(i).tryAcquire(5), "nothing is reserved");
            assertEquals(taken.get(i).get(), rates.get(i).taken());
        }
    }

    private static void turn(JointLimiter joint, int number, Runnable used)
            throws InterruptedException, ExecutionException, TimeoutException {
        switch (number % 4) {
            case 0 -> {
                // It gives up at some point, or not at all.
                try {
                    joint.acquire(number * 1000L);
                } catch (TimeoutException e) {
                    return;
                }
                used.run();
            }
            case 1 -> {
                if (joint.tryAcquire(List.of()) == null) {
                    used.run();
                }
            }
            case 2 ->
                joint.acquireAsync(() -> used, unused -> {})
                        .get(1, TimeUnit.MINUTES)
                        .run();
            default -> {
                joint.acquire(TimeUnit.MINUTES.toNanos(1));
                used.run();
            }
        }
    }

    @Test
    void closingOneLimiterEndsTheWaitAndLeavesTheOthers() throws Exception {
        RateLimiter rate = rate(Burst.SMOOTH);
        GaugeLimiter gauge = gauge();
        rate.setUsable(1, Meter.NEVER, 0, -1);
        gauge.setUsable(1, Meter.NEVER, 0);
        var joint = new JointLimiter(List.of(new Part(rate, 500), new Part(gauge, 1)));
        CompletableFuture<String> waiting = joint.acquireAsync(() -> "taken", unused -> {});
        CompletableFuture<String> cancelled = joint.acquireAsync(() -> "taken", unused -> {});
        assertTrue(!gauge.tryAcquire(1), "its permit is reserved");
        assertTrue(cancelled.cancel(false));
        assertEquals(500, rate.waiting());
        rate.close();
        var error = assertThrows(ExecutionException.class, () -> waiting.get(1, TimeUnit.MINUTES));
        assertTrue(error.getCause() instanceof ClosedException);
        assertTrue(gauge.tryAcquire(1), "nothing is reserved any more");
        assertThrows(ClosedException.class, () -> joint.acquire(FOREVER));
        Refusal refusal = joint.tryAcquire(List.of());
        assertNotNull(refusal);
        assertTrue(refusal.isClosed() && refusal.index() == 0);
    }

    @Test
    void aLimiterMayBeNamedTwiceAndZeroPermitsAreNotWaitedFor() throws Exception {
        var crowd = new Crowd(rate(Burst.permits(10)), gauge());
        crowd.setCapacity(0, 1);
        crowd.pass(5_000);
        var twice = new JointLimiter(List.of(
                new Part(crowd.limits.get(0), 2), new Part(crowd.limits.get(1), 0), new Part(crowd.limits.get(0), 4)));
        Refusal refusal = twice.decide(new long[] {crowd.now}, List.of());
        assertNotNull(refusal);
        assertEquals(2, refusal.index());
        assertEquals(1000 * MS, refusal.retryAfter());
        crowd.pass(1_000);
        assertNull(twice.decide(new long[] {crowd.now}, List.of()));
        new JointLimiter(List.of(new Part(crowd.limits.get(1), 0))).acquire(FOREVER);
    }
}
