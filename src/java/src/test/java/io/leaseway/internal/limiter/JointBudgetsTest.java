package io.leaseway.internal.limiter;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.leaseway.ClosedException;
import io.leaseway.internal.limiter.JointBudgets.Amounts;
import io.leaseway.internal.limiter.JointBudgets.Need;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Amounts of budgets beside permits of rates and gauges. */
@Timeout(120)
class JointBudgetsTest {
    private static final long MS = 1_000_000;
    private static final long FOREVER = Limiter.FOREVER;

    /** A budget with leases of its own. */
    private static final class Purse {
        final Spender spender;
        private long token;

        Purse() {
            // Its callers run at once.
            this(new Spender(System.nanoTime(), () -> {}, Runnable::run));
        }

        Purse(Spender spender) {
            this.spender = spender;
        }

        Need of(double amount) {
            return new Need(null, 0, spender, amount);
        }

        void give(double left) {
            give(left, 1000);
        }

        /** Gives an allowance that leaves this amount to spend. */
        void give(double left, long start) {
            boolean isSame = spender.period() != null && spender.period().start() == start;
            double capacity = (isSame ? spender.spent() : 0) + left;
            spender.take(BudgetBookTest.lease(++token, capacity, start, false), Long.MAX_VALUE);
        }

        double spent() {
            return spender.spent();
        }

        /** Checks what was spent, and what is asked for. */
        void has(double spent, double wants) {
            assertEquals(spent, spender.spent(), "spent");
            assertEquals(wants, spender.wants().amount(), "wants");
        }
    }

    private final Purse a = new Purse();
    private final Purse b = new Purse();
    private final RateLimiter rate = new RateLimiter(
            System.nanoTime(), Burst.permits(10), Bucket.DEFAULT_MAX_DEBT, () -> {}, ForkJoinPool.commonPool());
    private final GaugeLimiter gauge = new GaugeLimiter(System.nanoTime(), () -> {}, ForkJoinPool.commonPool());

    private static Need of(Limiter limiter, long n) {
        return new Need(limiter, n, null, 0);
    }

    private static JointBudgets joint(Need... needs) {
        return new JointBudgets(List.of(needs));
    }

    private static CompletableFuture<Amounts> start(JointBudgets joint) {
        return joint.acquireAsync(amounts -> amounts, joint::undo);
    }

    private static void eventually(String what, BooleanSupplier condition) {
        for (long end = System.nanoTime() + 60_000 * MS; !condition.getAsBoolean(); ) {
            assertTrue(System.nanoTime() < end, what);
            Thread.onSpinWait();
        }
    }

    private static void refused(int index, boolean isKnown, JointBudgets.Attempt attempt) {
        assertNull(attempt.amounts());
        assertEquals(index, attempt.refusal().index());
        assertEquals(isKnown, attempt.refusal().retryAfter() != Limiter.UNKNOWN);
    }

    @Test
    void allAreTakenOrNone() {
        // So slow that no permit is saved up during the test.
        rate.setUsable(1e-6, Meter.NEVER, 0, 1e7);
        gauge.setUsable(2, Meter.NEVER, 0);
        a.give(10);
        b.give(5);
        assertNotNull(joint(a.of(3.5), b.of(5), of(gauge, 1)).tryAcquire().amounts());
        assertEquals(3.5, a.spent());
        assertEquals(5, b.spent());
        b.give(5);
        refused(1, false, joint(a.of(6.5), b.of(5.5), of(gauge, 1)).tryAcquire());
        a.has(3.5, 7);
        b.has(5, 6);
        refused(0, false, joint(a.of(7), b.of(5), of(gauge, 1)).tryAcquire());
        refused(1, true, joint(a.of(1), of(rate, 8), b.of(1), of(gauge, 1)).tryAcquire());
        refused(2, false, joint(a.of(1), b.of(1), of(gauge, 2)).tryAcquire());
        refused(0, false, joint(a.of(9), of(rate, 8), b.of(9), of(gauge, 2)).tryAcquire());
        JointBudgets.Attempt tooMany = joint(a.of(9), b.of(9), of(gauge, 3)).tryAcquire();
        refused(2, false, tooMany);
        assertEquals(2, tooMany.refusal().burst(), "waiting is in vain");
        assertEquals(3.5, a.spent());
        assertEquals(5, b.spent());
        assertEquals(1, gauge.inUse());
        assertEquals(0, rate.taken());
        assertNotNull(joint(a.of(0), b.of(5)).tryAcquire().amounts());
        a.spender.close();
        assertTrue(joint(a.of(1), b.of(9)).tryAcquire().refusal().isClosed());
    }

    @Test
    void nothingIsHeldWhileACallerWaitsForABudget() throws Exception {
        gauge.setUsable(2, Meter.NEVER, 0);
        a.give(10);
        CompletableFuture<Amounts> waiting = start(joint(a.of(4), of(gauge, 2), b.of(2)));
        a.has(0, 4);
        b.has(0, 2);
        assertTrue(b.spender.hasWaiting());
        assertFalse(a.spender.hasWaiting());
        assertEquals(0, gauge.inUse());
        assertTrue(a.spender.trySpend(7) != Spender.REFUSED, "nothing of it is reserved");
        b.give(2);
        b.has(0, 2);
        assertTrue(a.spender.hasWaiting(), "now it waits for the other");
        assertFalse(b.spender.hasWaiting());
        assertFalse(waiting.isDone());
        a.give(4);
        waiting.get(1, TimeUnit.MINUTES);
        assertEquals(11, a.spent());
        assertEquals(2, b.spent());
        assertEquals(2, gauge.inUse());
    }

    /** A server takes back what is not wanted in the answer that gives what is. */
    private void answer() {
        double ofA = a.spender.wants().amount();
        double ofB = b.spender.wants().amount();
        // The smaller one first.
        if (ofA < ofB) {
            a.give(ofA);
            b.give(ofB);
        } else {
            b.give(ofB);
            a.give(ofA);
        }
    }

    @Test
    void callersOfTwoBudgetsAreServedThoughAllowancesShrink() {
        JointBudgets joint = joint(a.of(1), b.of(1));
        CompletableFuture<Amounts> waiting = start(joint);
        for (int answers = 0; answers < 9; answers++) {
            answer();
        }
        assertTrue(waiting.isDone());
        a.give(0);
        b.give(0);
        for (int answers = 0; answers < 3; answers++) {
            // As callers that do not wait, and see one budget after the other refuse.
            (answers == 0 ? a : b).give(1);
            joint.tryAcquire();
            answer();
        }
        assertNotNull(joint.tryAcquire().amounts());
    }

    @Test
    void amountsAreGivenBackWhenAWaitEndsWithoutPermits() throws Exception {
        gauge.setUsable(2, Meter.NEVER, 0);
        a.give(10);
        Thread test = Thread.currentThread();
        for (double ofOther : new double[] {1, 0}) {
            // First the wait for the budget ends, then the wait for the permits.
            JointBudgets joint = joint(a.of(4), of(gauge, 3), b.of(ofOther));
            BooleanSupplier waits = () -> ofOther > 0 ? b.spender.hasWaiting() : gauge.waiting() > 0;
            assertThrows(TimeoutException.class, () -> joint.acquire(20 * MS));
            nothingIsTaken();
            new Thread(() -> {
                        eventually("it waits", waits);
                        test.interrupt();
                    })
                    .start();
            assertThrows(InterruptedException.class, () -> joint.acquire(FOREVER));
            nothingIsTaken();
            CompletableFuture<Amounts> cancelled = start(joint);
            assertTrue(waits.getAsBoolean());
            assertEquals(ofOther > 0 ? 0 : 4, a.spent());
            assertTrue(cancelled.cancel(false));
            assertFalse(waits.getAsBoolean());
            nothingIsTaken();
        }
        CompletableFuture<Amounts> ofBudget = start(joint(a.of(4), b.of(1)));
        CompletableFuture<Amounts> ofPermits = start(joint(a.of(4), of(gauge, 3)));
        b.spender.close();
        gauge.close();
        for (CompletableFuture<Amounts> closed : List.of(ofBudget, ofPermits)) {
            var refused = assertThrows(ExecutionException.class, () -> closed.get(1, TimeUnit.MINUTES));
            assertEquals(ClosedException.class, refused.getCause().getClass());
        }
        nothingIsTaken();
        assertThrows(ClosedException.class, () -> joint(a.of(4), b.of(1)).acquire(FOREVER));
        assertThrows(ClosedException.class, () -> joint(a.of(4), of(gauge, 1)).acquire(FOREVER));
        nothingIsTaken();
    }

    private void nothingIsTaken() {
        assertEquals(0, a.spent());
        assertEquals(0, b.spent());
        assertEquals(0, gauge.inUse());
        assertEquals(0, gauge.waiting());
    }

    @Test
    void aBudgetMayBeNamedTwice() throws Exception {
        a.give(1);
        JointBudgets twice = joint(a.of(0.75), of(gauge, 0), a.of(0.75));
        refused(0, false, twice.tryAcquire());
        CompletableFuture<Amounts> waiting = start(twice);
        assertTrue(a.spender.hasWaiting());
        a.give(1.5);
        Amounts amounts = waiting.get(1, TimeUnit.MINUTES);
        assertEquals(1.5, a.spent());
        amounts.settle(new double[] {0.25, 100, 0.5});
        assertEquals(0.75, a.spent());
        assertThrows(IllegalArgumentException.class, () -> joint(a.of(1e15), a.of(1e15)));
    }

    @Test
    void amountsOfWhichNothingWasReservedAreSettledToo() throws Exception {
        a.give(10);
        joint(a.of(4), b.of(0)).acquire(FOREVER).settle(new double[] {2.5, 1});
        assertEquals(2.5, a.spent());
        assertEquals(1, b.spender.owed());
    }

    @Test
    void amountsAreRefundedInTheirPeriodToWhatTookThem() throws Exception {
        JointBudgets joint = joint(a.of(4));
        a.give(20);
        joint.acquire(FOREVER).use();
        joint.acquire(FOREVER).use();
        a.spender.spend(1, FOREVER);
        joint.refund(new double[] {3});
        assertEquals(6, a.spent());
        Amounts undone = joint.acquire(FOREVER);
        undone.use();
        joint.undo(undone);
        assertEquals(6, a.spent());
        joint.refund(new double[] {100});
        assertEquals(1, a.spent(), "that was spent elsewhere");
        joint(a.of(4)).refund(new double[] {1});
        assertEquals(1, a.spent());
        joint.acquire(FOREVER).use();
        a.give(20, 2000);
        a.spender.spend(8, FOREVER);
        joint.refund(new double[] {1});
        assertEquals(8, a.spent(), "another period");
        joint.acquire(FOREVER).use();
        joint.refund(new double[] {8});
        assertEquals(8, a.spent(), "at most what was taken in this period");
    }

    /** Threads that acquire, try, give up and settle. Allowances shrink as those of a server, which takes back the rest. */
    private static final class Crowd {
        private static final int THREADS = 24;
        private static final int TURNS = 60;

        private final List<Purse> purses = new ArrayList<>();
        private final RateLimiter rate = new RateLimiter(
                System.nanoTime(), Burst.permits(100), Bucket.DEFAULT_MAX_DEBT, () -> {}, ForkJoinPool.commonPool());
        private final GaugeLimiter gauge = new GaugeLimiter(System.nanoTime(), () -> {}, ForkJoinPool.commonPool());
        /** What was used of each budget, in halves. */
        private final List<AtomicLong> halves = List.of(new AtomicLong(), new AtomicLong(), new AtomicLong());

        private final AtomicInteger[] outcomes = {new AtomicInteger(), new AtomicInteger(), new AtomicInteger()};
        private final List<Throwable> failures = Collections.synchronizedList(new ArrayList<>());
        private final AtomicBoolean isOver = new AtomicBoolean();

        Crowd() {
            for (int i = 0; i < 3; i++) {
                purses.add(new Purse(new Spender(System.nanoTime(), () -> {}, ForkJoinPool.commonPool())));
            }
            rate.setUsable(100_000, Meter.NEVER, 0, -1);
            gauge.setUsable(2, Meter.NEVER, 0);
        }

        void run() throws InterruptedException {
            var bank = new Thread(() -> {
                while (!isOver.get()) {
                    for (Purse purse : purses) {
                        // Never more than what one caller needs and a little, so that callers contend.
                        purse.give(Math.min(purse.spender.wants().amount(), 2));
                    }
                    Thread.yield();
                }
            });
            bank.start();
            var threads = new ArrayList<Thread>();
            for (int i = 0; i < THREADS; i++) {
                var random = new SplittableRandom(i);
                var thread = new Thread(() -> {
                    try {
                        for (int turn = 0; turn < TURNS; turn++) {
                            call(random);
                        }
                    } catch (Exception | AssertionError e) {
                        failures.add(e);
                    }
                });
                threads.add(thread);
                thread.start();
            }
            for (Thread thread : threads) {
                thread.join();
            }
            isOver.set(true);
            bank.join();
            assertEquals(List.of(), failures);
            for (int i = 0; i < 3; i++) {
                Purse purse = purses.get(i);
                double used = halves.get(i).get() / 2.0;
                eventually("what was cancelled is given back", () -> {
                    purse.give(2);
                    return purse.spender.owed() == 0 && purse.spent() == used;
                });
                assertFalse(purse.spender.hasWaiting());
            }
            eventually("permits are given back", () -> gauge.inUse() == 0 && gauge.waiting() == 0);
            assertEquals(0, rate.waiting());
            System.out.println(outcomes[0] + " acquired, " + outcomes[1] + " gave up, " + outcomes[2] + " refused");
        }

        private void call(SplittableRandom random) throws Exception {
            var needs = new ArrayList<Need>();
            var amounts = new double[5];
            var order = new ArrayList<>(List.of(0, 1, 2));
            Collections.shuffle(order, new java.util.Random(random.nextLong()));
            for (int i = 0; i < 3; i++) {
                amounts[i] = random.nextInt(4) / 2.0;
                needs.add(purses.get(order.get(i)).of(amounts[i]));
            }
            needs.add(of(rate, random.nextInt(3)));
            needs.add(of(gauge, random.nextInt(3)));
            var joint = new JointBudgets(needs);
            Amounts taken;
            try {
                taken = take(joint, random);
            } catch (TimeoutException | CancellationException e) {
                outcomes[1].incrementAndGet();
                return;
            }
            if (taken == null) {
                outcomes[2].incrementAndGet();
                return;
            }
            outcomes[0].incrementAndGet();
            for (int i = 0; i < 3; i++) {
                amounts[i] = random.nextBoolean() ? amounts[i] : random.nextInt(4) / 2.0;
                halves.get(order.get(i)).addAndGet((long) (2 * amounts[i]));
            }
            joint.release();
            taken.settle(amounts);
        }

        private static Amounts take(JointBudgets joint, SplittableRandom random) throws Exception {
            switch (random.nextInt(5)) {
                case 0 -> {
                    return joint.acquire(random.nextInt(5) * MS);
                }
                case 1 -> {
                    return joint.tryAcquire().amounts();
                }
                case 2 -> {
                    CompletableFuture<Amounts> future = start(joint);
                    if (random.nextBoolean()) {
                        Thread.sleep(random.nextInt(3));
                    }
                    future.cancel(false);
                    return future.join();
                }
                case 3 -> {
                    return start(joint).get(1, TimeUnit.MINUTES);
                }
                default -> {
                    return joint.acquire(60_000 * MS);
                }
            }
        }
    }

    @Test
    void threadsAreServedThoughAllowancesShrinkAndLoseNothing() throws Exception {
        new Crowd().run();
    }
}
