package io.leaseway.internal.limiter;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.leaseway.ClosedException;
import io.leaseway.internal.session.Wants;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Callers of a budget. Its clock stands still. */
@Timeout(60)
class SpenderTest {
    private static final long MS = 1_000_000;
    private static final long FAR = Long.MAX_VALUE;

    private final AtomicInteger pressure = new AtomicInteger();
    private final Spender spender = new Spender(() -> 0, pressure::incrementAndGet, Runnable::run);
    private long token;

    private void take(double capacity) {
        take(capacity, 1000);
    }

    private void take(double capacity, long start) {
        assertFalse(spender.take(BudgetBookTest.lease(++token, capacity, start, false), FAR));
    }

    private CompletableFuture<Long> spend(double amount) {
        return spender.spendAsync(amount, era -> era, (late, era) -> spender.settle(amount, 0, era));
    }

    @Test
    void callersAreServedFirstComeFirstServed() throws Exception {
        List<Double> served = new ArrayList<>();
        spend(10).thenAccept(era -> served.add(10.0));
        spend(1).thenAccept(era -> served.add(1.0));
        Wants wants = spender.wants();
        assertEquals(11, wants.amount());
        assertEquals(10, wants.spent().need());
        take(9);
        assertEquals(Spender.REFUSED, spender.trySpend(1), "others wait");
        assertTrue(spender.hasWaiting());
        take(10);
        take(11);
        assertEquals(List.of(10.0, 1.0), served);
        assertEquals(11, spender.spent());
        assertFalse(spender.hasWaiting());
        assertEquals(0, spender.wants().amount());
    }

    @Test
    void whatIsTakenBackServesCallersOnceNothingIsOwed() throws Exception {
        take(10);
        long era = spender.spend(8, Limiter.FOREVER);
        assertEquals(0, pressure.get());
        spender.charge(4);
        assertEquals(2, spender.owed());
        assertEquals(0, spender.left());
        assertEquals(1, pressure.get());
        CompletableFuture<Long> waiting = spend(3);
        spender.settle(4, 1, era);
        assertEquals(0, spender.owed());
        assertEquals(9, spender.spent());
        assertFalse(waiting.isDone());
        spender.settle(4, 1, era);
        assertEquals(era, waiting.join());
        assertEquals(9, spender.spent());
    }

    @Test
    void callersLearnInWhichPeriodTheyHaveSpent() {
        var delayed = new ArrayList<Runnable>();
        var slow = new Spender(() -> 0, () -> {}, delayed::add);
        CompletableFuture<Long> waiting = slow.spendAsync(3, era -> era, (late, era) -> {});
        slow.take(BudgetBookTest.lease(1, 10, 1000, false), FAR);
        slow.take(BudgetBookTest.lease(2, 10, 2000, false), FAR);
        delayed.forEach(Runnable::run);
        assertEquals(10, slow.left());
        slow.settle(3, 0, waiting.join());
        assertEquals(0, slow.spent(), "it was spent in the period before");
        long era = slow.trySpend(4);
        slow.settle(3, 0, waiting.join());
        assertEquals(4, slow.spent());
        slow.settle(4, 1, era);
        assertEquals(1, slow.spent());
    }

    @Test
    void waitsThatEndHaveSpentNothing() throws Exception {
        take(5);
        CompletableFuture<Void> cancelled = spender.spendAsync(6);
        CompletableFuture<Void> next = spender.spendAsync(7);
        CompletableFuture<Void> last = spender.spendAsync(5);
        cancelled.cancel(false);
        assertFalse(last.isDone());
        assertEquals(12, spender.wants().amount());
        next.cancel(false);
        assertTrue(last.isDone(), "it is the first now");
        assertEquals(5, spender.spent());
        assertThrows(TimeoutException.class, () -> spender.spend(1, 20 * MS));
        Thread.currentThread().interrupt();
        assertThrows(InterruptedException.class, () -> spender.spend(0, Limiter.FOREVER));
        Thread test = Thread.currentThread();
        new Thread(() -> {
                    while (!spender.hasWaiting()) {
                        Thread.onSpinWait();
                    }
                    test.interrupt();
                })
                .start();
        assertThrows(InterruptedException.class, () -> spender.spend(1, Limiter.FOREVER));
        assertEquals(5, spender.spent());
        assertEquals(0, spender.wants().spent().need());
        CompletableFuture<Void> closed = spender.spendAsync(1);
        spender.close();
        var refused = assertThrows(ExecutionException.class, () -> closed.get(5, TimeUnit.SECONDS));
        assertEquals(ClosedException.class, refused.getCause().getClass());
        assertThrows(ClosedException.class, () -> spender.spend(0, Limiter.FOREVER));
        assertTrue(spender.spendAsync(0).isCompletedExceptionally());
        assertEquals(Spender.REFUSED, spender.trySpend(0));
        assertFalse(spender.take(BudgetBookTest.lease(99, 100, 1000, true), FAR));
        assertEquals(5, spender.wants().spent().spent(), "for the last report");
    }

    @Test
    void anExecutorThatWasShutDownLosesNoCaller() throws Exception {
        var spender = new Spender(() -> 0, () -> {}, task -> {
            throw new RejectedExecutionException();
        });
        CompletableFuture<Void> waiting = spender.spendAsync(1);
        spender.take(BudgetBookTest.lease(1, 1, 1000, false), FAR);
        waiting.get(10, TimeUnit.SECONDS);
    }

    /** A caller that leaves when it is its turn has either its amount or nothing spent. */
    @Test
    void callersThatLeaveAtTheirTurnLoseNothing() throws Exception {
        var shared = new Spender(System.nanoTime(), () -> {}, ForkJoinPool.commonPool());
        shared.take(BudgetBookTest.lease(1, 5, 1000, false), FAR);
        var served = new AtomicInteger();
        for (int n = 0; n < 2000; n++) {
            long era = shared.spend(5, Limiter.FOREVER);
            CompletableFuture<Void> future = shared.spendAsync(5);
            var canceller = new Thread(() -> future.cancel(false));
            long timeout = 1 + n % 100 * 1000L;
            CompletableFuture<Boolean> blocking = CompletableFuture.supplyAsync(() -> {
                try {
                    shared.settle(5, 0, shared.spend(5, timeout));
                    return true;
                } catch (TimeoutException e) {
                    return false;
                } catch (InterruptedException e) {
                    throw new AssertionError(e);
                }
            });
            canceller.start();
            shared.settle(5, 0, era);
            canceller.join();
            if (!future.isCancelled()) {
                served.incrementAndGet();
                future.get(5, TimeUnit.SECONDS);
                shared.settle(5, 0, era);
            }
            if (blocking.get(5, TimeUnit.SECONDS)) {
                served.incrementAndGet();
            }
            for (long end = System.nanoTime() + 5_000_000_000L; shared.spent() > 0; ) {
                assertTrue(System.nanoTime() < end, shared.spent() + " is lost");
            }
            assertFalse(shared.hasWaiting());
        }
        System.out.println(served + " of 4000 were served");
    }
}
