package io.leaseway.internal.limiter;

import static io.leaseway.internal.limiter.Meter.NEVER;
import static io.leaseway.internal.limiter.Meter.UNKNOWN;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.leaseway.ClosedException;
import io.leaseway.internal.limiter.Waiter.State;
import java.math.BigInteger;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import org.junit.jupiter.api.Test;

/** In virtual time. */
class LimiterTest {
    private static final long MS = 1_000_000;
    private static final long SECOND = 1000 * MS;
    private static final long HOUR = 3600 * SECOND;
    private static final double INFINITE = Double.POSITIVE_INFINITY;

    @Test
    void numbersAgreeWithBigIntegers() {
        var random = new SplittableRandom(1);
        BigInteger most = UInt128.MAX.toBigInteger();
        BigInteger maxLong = BigInteger.valueOf(Long.MAX_VALUE);
        for (int i = 0; i < 20_000; i++) {
            UInt128 a = number(random);
            UInt128 b = number(random);
            long n = random.nextLong() >>> 1 + random.nextInt(63);
            BigInteger x = a.toBigInteger();
            BigInteger y = b.toBigInteger();
            assertEquals(x.add(y).min(most), a.add(b).toBigInteger());
            assertEquals(
                    x.multiply(BigInteger.valueOf(n)).min(most), a.multiply(n).toBigInteger());
            assertEquals(x.subtract(y).max(BigInteger.ZERO), a.subtract(b).toBigInteger());
            assertEquals(x.compareTo(y) < 0, a.isLess(b));
            assertEquals(x.doubleValue(), a.toDouble(), x.doubleValue() * 1e-15);
            if (!b.isZero()) {
                BigInteger[] quotient = x.divideAndRemainder(y);
                BigInteger up = quotient[1].signum() > 0 ? quotient[0].add(BigInteger.ONE) : quotient[0];
                assertEquals(quotient[0].min(maxLong).longValue(), a.divide(b));
                assertEquals(up.min(maxLong).longValue(), a.divideUp(b));
            }
            double small = Math.scalb(random.nextDouble(), random.nextInt(126));
            assertEquals(
                    new java.math.BigDecimal(small).toBigInteger(),
                    UInt128.of(small).toBigInteger());
        }
    }

    private static UInt128 number(SplittableRandom random) {
        long hi = random.nextBoolean() ? 0 : random.nextLong() >>> random.nextInt(64);
        return new UInt128(hi, random.nextLong() >>> random.nextInt(64));
    }

    private static Bucket bucket(double capacity, Burst burst) {
        var bucket = new Bucket(burst);
        bucket.setCapacity(0, capacity);
        return bucket;
    }

    @Test
    void aBucketStartsEmptyAndFillsUpToItsBurst() {
        Bucket bucket = bucket(10, Burst.permits(3));
        assertFalse(bucket.take(0, 1), "it starts with credit");
        assertEquals(100 * MS, bucket.readyIn(0, 1));
        assertFalse(bucket.take(100 * MS - 1, 1));
        assertTrue(bucket.take(100 * MS, 1));
        assertEquals(3, bucket.available(HOUR));
        assertTrue(bucket.take(HOUR, 3));
        assertFalse(bucket.take(HOUR, 1));
    }

    @Test
    void burstsFollowTheCapacity() {
        assertEquals(3, Burst.SMOOTH.within(100, -1));
        assertEquals(1, Burst.SMOOTH.within(0, -1));
        assertEquals(120, Burst.window(60).within(2, -1));
        assertEquals(1, Burst.window(0).within(INFINITE, -1));
        assertEquals(7, Burst.permits(7).within(2, -1));
        assertEquals(1, Burst.permits(0.5).within(2, -1));
        assertEquals(INFINITE, Burst.permits(7).within(INFINITE, -1));
        // The server sets the burst of a pool. A smaller choice is respected.
        assertEquals(60, Burst.SMOOTH.within(10, 6));
        assertEquals(1.2, Burst.SMOOTH.within(10, 0));
        assertEquals(7, Burst.permits(7).within(10, 6));
        assertEquals(60, Burst.window(60).within(10, 6));
    }

    /** In any period of T seconds at most capacity · T + burst permits pass. */
    @Test
    void aBucketNeverPassesMoreThanCapacityAndBurst() {
        record Event(long at, double before) {}
        for (int seed = 0; seed < 100; seed++) {
            var random = new SplittableRandom(seed);
            double capacity = Math.exp(random.nextDouble() * 20 - 5);
            Bucket bucket = bucket(capacity, Burst.SMOOTH);
            List<Event> events = new ArrayList<>();
            long now = 0;
            double passed = 0;
            for (int i = 0; i < 300; i++) {
                now += (long) (-Math.log(1 - random.nextDouble()) / capacity * 1e9);
                long n = random.nextInt(3) + 1;
                if (!bucket.take(now, n)) {
                    continue;
                }
                events.add(new Event(now, passed));
                passed += n;
                for (Event from : events) {
                    double most = capacity * (now - from.at) / 1e9 + Burst.SMOOTH.at(capacity);
                    assertTrue(passed - from.before <= most + 1e-6, "seed " + seed);
                }
                if (random.nextInt(4) == 0) {
                    // Returned permits never let more through.
                    passed -= bucket.refund(now, random.nextLong(n + 1));
                }
            }
        }
    }

    @Test
    void aBucketDoesNotDriftHoweverOftenItIsSettled() {
        for (double capacity : new double[] {0.1, 3, 99, 12_345.678}) {
            Bucket rare = bucket(capacity, Burst.window(3600));
            Bucket often = bucket(capacity, Burst.window(3600));
            for (long now = 0; now < SECOND; now += 77_777) {
                often.settle(now);
            }
            rare.settle(SECOND);
            often.settle(SECOND);
            assertEquals(rare.credit(), often.credit());
        }
    }

    @Test
    void debtIsPaidBeforeAnyCallerPasses() {
        var bucket = new Bucket(Burst.permits(5), 25);
        bucket.setCapacity(0, 10);
        assertEquals(25, bucket.charge(SECOND, 25));
        assertEquals(20, bucket.owed(SECOND));
        assertFalse(bucket.take(3 * SECOND, 1));
        assertTrue(bucket.take(3_100 * MS, 1), "a debt of 20 takes two seconds, and a permit 100 ms");
        assertEquals(25, bucket.charge(3_100 * MS, 100), "the maximum debt");
        bucket.setCapacity(3_100 * MS, INFINITE);
        assertEquals(0, bucket.owed(3_100 * MS));
    }

    @Test
    void returnedPermitsRestoreWhatThereWouldBeWithoutThem() {
        Bucket bucket = bucket(10, Burst.permits(10));
        bucket.take(SECOND, 8);
        bucket.refund(SECOND, 8);
        assertEquals(10, bucket.available(SECOND));
        bucket.take(SECOND, 8);
        // After 500 ms the bucket would be full, too, so only 3 of 8 can come back.
        bucket.refund(1_500 * MS, 8);
        assertEquals(10, bucket.available(1_500 * MS));
        bucket.take(1_500 * MS, 8);
        bucket.refund(HOUR, 8);
        assertEquals(10, bucket.available(HOUR));
        // A promise is tracked by itself: what others take later does not age it.
        bucket.take(HOUR, 5);
        Promise promise = bucket.promise(5);
        bucket.take(HOUR, 5);
        bucket.usePart(HOUR, promise, 2);
        assertEquals(3, bucket.available(HOUR));
    }

    @Test
    void aPromiseRestoresNoMoreThanTheRoomSince() {
        Bucket bucket = bucket(10, Burst.permits(10));
        bucket.take(SECOND, 6);
        Promise promise = bucket.promise(6);
        // Three permits have come back by themselves, so there is room for three.
        bucket.handBack(1_300 * MS, promise);
        assertEquals(Bucket.units(10), bucket.credit());
    }

    @Test
    void aCutDropsSavedPermitsInProportion() {
        Bucket bucket = bucket(100, Burst.window(1));
        bucket.settle(60 * SECOND);
        bucket.setCapacity(60 * SECOND, 10);
        assertEquals(10, bucket.available(60 * SECOND));
        bucket.setCapacity(60 * SECOND, 0);
        assertFalse(bucket.take(HOUR, 1));
        assertEquals(UNKNOWN, bucket.readyIn(HOUR, 1));
        bucket.setCapacity(HOUR, INFINITE);
        assertTrue(bucket.take(HOUR, 1L << 62), "there is no limit");
    }

    // The queue.

    private static FairQueue rateAt(double capacity, Burst burst) {
        var queue = new FairQueue(new Bucket(burst), () -> {});
        queue.setCapacity(0, capacity, NEVER, 0);
        return queue;
    }

    private static Waiter join(FairQueue queue, long n) {
        Waiter waiter = queue.acquire(0, n, () -> {});
        assertNotNull(waiter);
        return waiter;
    }

    private static boolean isAdmitted(Waiter waiter) {
        return waiter.state == State.ADMITTED;
    }

    @Test
    void callersAreServedInOrder() {
        FairQueue queue = rateAt(10, Burst.permits(1));
        Waiter large = join(queue, 5);
        Waiter small = join(queue, 1);
        assertEquals(500 * MS, queue.wake());
        queue.tick(499 * MS);
        assertFalse(isAdmitted(large) || isAdmitted(small) || queue.tryAcquire(499 * MS, 1));
        queue.tick(500 * MS);
        assertTrue(isAdmitted(large) && !isAdmitted(small), "it saves up for more than its burst");
        queue.tick(600 * MS);
        assertTrue(isAdmitted(small));
        assertEquals(NEVER, queue.wake());
        assertEquals(List.of(large, small), queue.takeResolved());
    }

    @Test
    void aWaiterThatGivesUpTakesNothing() {
        FairQueue queue = rateAt(10, Burst.permits(1));
        Waiter first = join(queue, 4);
        Waiter second = join(queue, 1);
        queue.tick(200 * MS);
        queue.leave(200 * MS, first);
        assertTrue(isAdmitted(second), "the credit saved for the first serves the second");
        // It was its turn at that moment.
        queue.leave(200 * MS, second);
        assertTrue(queue.tryAcquire(200 * MS, 1), "its permit came back");
        queue.leave(200 * MS, second);
        assertEquals(0, queue.waiting());
        assertTrue(!queue.hasWaiters());
        assertEquals(1, queue.meter().taken());
    }

    @Test
    void creditSavedForAWaiterThatLeavesIsDropped() {
        FairQueue queue = rateAt(10, Burst.permits(1));
        queue.leave(400 * MS, join(queue, 5));
        assertEquals(1, ((Bucket) queue.meter()).available(400 * MS));
    }

    @Test
    void aLeaseIsNotUsedAfterItsExpiry() {
        FairQueue queue = rateAt(0, Burst.window(60));
        queue.setCapacity(0, 100, 10 * SECOND, 2);
        assertEquals(900, ((Bucket) queue.meter()).available(9 * SECOND));
        // Nothing runs at the expiry: the next caller notices. The fallback of 2 per second has saved up a minute's
        // worth at most, and time after the expiry counts at its rate.
        assertFalse(queue.tryAcquire(20 * SECOND, 121), "permits of an expired lease");
        assertTrue(queue.tryAcquire(20 * SECOND, 120));

        var gauge = new FairQueue(new Count(), () -> {});
        gauge.setCapacity(0, 5, 10 * SECOND, 0);
        assertTrue(gauge.tryAcquire(9 * SECOND, 1));
        assertFalse(gauge.tryAcquire(10 * SECOND, 1));
    }

    @Test
    void aGaugeGrantsNoMoreThanItsCapacity() {
        var count = new Count();
        var queue = new FairQueue(count, () -> {});
        queue.setCapacity(0, 2.9, NEVER, 0);
        assertTrue(queue.tryAcquire(0, 2));
        assertFalse(queue.tryAcquire(0, 1), "2.9 allows two");
        Waiter waiter = join(queue, 1);
        queue.setCapacity(0, 1, NEVER, 0);
        count.giveBack(1);
        queue.admit(0);
        assertFalse(isAdmitted(waiter), "after a cut enough have to come back first");
        count.giveBack(1);
        queue.admit(0);
        assertTrue(isAdmitted(waiter));
        assertFalse(queue.tryAcquire(0, 5));
        assertEquals(3, queue.takePeak(), "a request for more than the capacity is not demand");
    }

    @Test
    void pressureIsNotifiedWhenCallersWaitAndWhenTheyDouble() {
        int[] notified = {0};
        var queue = new FairQueue(new Bucket(Burst.SMOOTH), () -> notified[0]++);
        for (int i = 0; i < 9; i++) {
            join(queue, 1);
        }
        assertEquals(4, notified[0], "for 1, 2, 4 and 8");
    }

    @Test
    void closingRefusesAll() {
        FairQueue queue = rateAt(1, Burst.SMOOTH);
        Waiter waiter = join(queue, 1);
        queue.close(0);
        assertThrows(ClosedException.class, () -> queue.finish(waiter));
        assertThrows(ClosedException.class, () -> queue.acquire(0, 1, () -> {}));
        assertFalse(queue.tryAcquire(HOUR, 1));
    }

    // Estimates of demand.

    private static double sampled(double rate, long step, long seconds) {
        var demand = new Demand(false);
        demand.sample(0, Sample.ofPeak(0));
        double arrived = 0;
        long now = 0;
        while (now < seconds * SECOND) {
            now += step;
            arrived += rate * step / 1e9;
            demand.sample(now, Sample.ofPeak((long) (arrived + 1e-6)));
        }
        return demand.wants(now);
    }

    @Test
    void wantsEqualASteadyRateAtAnySamplingInterval() {
        for (long step : new long[] {100, 700, 1250, 5000}) {
            for (double rate : new double[] {0.1, 1, 7.3, 100, 4321, 1e6}) {
                double wants = sampled(rate, step * MS, 600);
                assertTrue(Math.abs(wants / rate - 1) < 0.08, rate + " per second every " + step + " ms: " + wants);
            }
        }
    }

    @Test
    void wantsFallGraduallyToZero() {
        var demand = new Demand(true);
        demand.sample(0, Sample.ofPeak(100));
        demand.sample(MS, Sample.ofPeak(0));
        assertEquals(100, demand.wants(5 * SECOND));
        assertTrue(demand.wants(20 * SECOND) > 30 && demand.wants(20 * SECOND) < 40);
        assertEquals(0, demand.wants(10_000 * SECOND));
    }

    /** Each caller asks again as soon as it is served: arrivals equal served permits, and nearly all callers wait. */
    @Test
    void wantsOfSaturatedCallersExceedTheCapacityWithinBounds() {
        for (double capacity : new double[] {0.5, 10, 1000, 1e6}) {
            var demand = new Demand(false);
            demand.sample(0, new Sample(64, 0, 0, 64, 0, 0));
            double arrived = 64;
            for (int n = 1; n <= 600; n++) {
                arrived += capacity;
                demand.sample(n * SECOND, new Sample((long) arrived, 0, 0, 64, 0, 0));
            }
            double wants = demand.wants(600 * SECOND);
            assertTrue(wants > capacity && wants <= 1.05 * capacity + 64.5, wants + " of " + capacity);
        }
    }

    /** A single caller in a loop hides its demand, because it never has more than one call waiting. */
    @Test
    void aCallerInALoopReachesItsCapacity() {
        var demand = new Demand(false);
        double arrived = 1;
        double capacity = 0;
        for (int n = 0; n < 30; n++) {
            long now = n * 100 * MS;
            demand.sample(now, new Sample((long) arrived, 1, 0, 1, now, capacity));
            capacity = Math.min(demand.wants(now), 100);
            arrived += capacity / 10;
        }
        assertEquals(100, capacity);
    }
}
