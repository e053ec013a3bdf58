package io.leaseway.internal.limiter;

import static io.leaseway.internal.limiter.UInt128.ZERO;

/**
 * A token bucket that does not drift. Credit grows with time up to the burst, and is spent by callers.
 *
 * <p>A permit is 2^40 · 10^9 units of credit, so at c permits per second a nanosecond brings floor(c · 2^40) whole
 * units. Credit is therefore never rounded, and it makes no difference how often the bucket is settled. The capacity is
 * rounded down once, when it is set, by less than 2^-40 permits per second.
 *
 * <p>Debt is negative credit. While there is debt there is no credit.
 */
final class Bucket implements Meter {
    /** Bounds permits, and permits per second. */
    static final long MAX_PERMITS = 1_000_000_000_000_000L;

    /** The default maximum debt, in permits. */
    static final long DEFAULT_MAX_DEBT = 1_000_000;

    /** The number of units per nanosecond at one permit per second. */
    private static final double UNITS_PER_RATE = 0x1p40;

    /** 2^40 · 10^9. */
    private static final UInt128 UNITS_PER_PERMIT = new UInt128(0, 1L << 40).multiply(1_000_000_000);

    private final Burst burst;
    private final UInt128 maxDebt;
    /** The burst set by the server in seconds; negative if it sets none. */
    private double buffer = -1;

    private double capacity;
    /** Units per nanosecond. */
    private UInt128 rate = ZERO;
    /** The maximum credit in units, unless a waiter saves up for more. */
    private UInt128 depth;

    private UInt128 credit = ZERO;
    private UInt128 debt = ZERO;
    /** The price of the head of the queue in units. Credit may grow up to it. */
    private UInt128 saving = ZERO;

    private final Returns returns = new Returns();
    /** The time up to which credit has been computed. */
    private long settled;

    private long taken;
    /** The total time in which the bucket was not full. */
    private long recharging;

    /** Creates an empty bucket without capacity. */
    Bucket(Burst burst, long maxDebt) {
        this.burst = burst;
        this.maxDebt = units(Math.min(maxDebt, MAX_PERMITS));
        depth = depth(permits());
    }

    Bucket(Burst burst) {
        this(burst, DEFAULT_MAX_DEBT);
    }

    boolean isUnlimited() {
        return capacity == Double.POSITIVE_INFINITY;
    }

    UInt128 credit() {
        return credit;
    }

    long recharging() {
        return recharging;
    }

    long maxDebt() {
        return whole(maxDebt);
    }

    Standing standing(long now) {
        settle(now);
        double available = 0;
        if (isUnlimited()) {
            available = Double.POSITIVE_INFINITY;
        } else if (!debt.isZero()) {
            available = -debt.toDouble() / UNITS_PER_PERMIT.toDouble();
        } else if (!rate.isZero()) {
            available = credit.toDouble() / UNITS_PER_PERMIT.toDouble();
        }
        return new Standing(available, permits(), capacity);
    }

    @Override
    public double capacity() {
        return capacity;
    }

    /**
     * Changes the capacity. Time up to now counts at the old rate. Credit beyond the new burst is dropped, except for
     * what the head of the queue is saving up.
     */
    @Override
    public void setCapacity(long now, double newCapacity) {
        settle(now);
        capacity = newCapacity;
        if (isUnlimited()) {
            rate = UInt128.MAX;
            debt = ZERO;
        } else {
            // Multiplying by a power of two is exact; the conversion truncates.
            rate = UInt128.of(Math.min(capacity, MAX_PERMITS) * UNITS_PER_RATE);
        }
        depth = depth(permits());
        dropOverflow();
    }

    void setBuffer(long now, double seconds) {
        settle(now);
        buffer = seconds;
    }

    @Override
    public void dropBuffer() {
        buffer = -1;
    }

    @Override
    public long inUse() {
        return 0;
    }

    /** Returns the whole permits available now. */
    long available(long now) {
        settle(now);
        if (isUnlimited()) {
            return Long.MAX_VALUE;
        }
        return rate.isZero() ? 0 : whole(credit);
    }

    /**
     * Takes n permits that were used already, from the credit first and then as debt. Returns the number of charged
     * permits, which is less than n only if the maximum debt is reached.
     */
    long charge(long now, long n) {
        settle(now);
        long charged = n;
        if (!isUnlimited()) {
            charged = Math.min(n, whole(credit.add(maxDebt.subtract(debt))));
            UInt128 price = units(charged);
            UInt128 atOnce = UInt128.min(price, credit);
            credit = credit.subtract(atOnce);
            debt = debt.add(price.subtract(atOnce));
            returns.take(price);
            dropOverflow();
        }
        taken += charged;
        return charged;
    }

    /** Returns n of the permits taken last. The result is at most the number that were taken. */
    long refund(long now, long n) {
        settle(now);
        long refunded = Math.min(n, taken);
        taken -= refunded;
        addCredit(returns.refund(units(refunded)));
        return refunded;
    }

    /** Ends a promise of which a number of permits were used. */
    void usePart(long now, Promise promise, long used) {
        long kept = Math.min(used, promise.n());
        handBack(now, new Promise(promise.n() - kept, promise.era()));
        claim(new Promise(kept, promise.era()));
    }

    private double permits() {
        return burst.within(capacity, buffer);
    }

    /** Computes the credit up to now. Time never runs backwards. */
    void settle(long now) {
        long passed = now - settled;
        if (passed <= 0) {
            return;
        }
        settled = now;
        UInt128 room = room();
        if (room.isZero() || rate.isZero()) {
            recharging += room.isZero() ? 0 : passed;
            return;
        }
        UInt128 gain = rate.multiply(passed);
        if (gain.isLess(room)) {
            recharging += passed;
        } else {
            // Rounded, because this is a statistic.
            recharging += (long) (room.toDouble() / rate.toDouble());
        }
        addCredit(gain);
        dropOverflow();
    }

    /** Adds credit, after paying debt. */
    private void addCredit(UInt128 gain) {
        if (debt.isZero()) {
            credit = credit.add(gain);
            return;
        }
        UInt128 paid = UInt128.min(gain, debt);
        debt = debt.subtract(paid);
        credit = credit.add(gain.subtract(paid));
    }

    /** Drops credit above the maximum. */
    private void dropOverflow() {
        credit = UInt128.min(credit, ceiling());
        returns.cut(room());
    }

    /** Returns the maximum credit now. */
    private UInt128 ceiling() {
        return UInt128.max(depth, saving);
    }

    /** Returns the distance of credit from its maximum. */
    private UInt128 room() {
        UInt128 room = ceiling().subtract(credit);
        return debt.isZero() ? room : room.add(debt);
    }

    @Override
    public long check(long now, long reserved, long n) {
        settle(now);
        UInt128 price = units(reserved + n);
        if (isUnlimited() || !rate.isZero() && !credit.isLess(price)) {
            return 0;
        }
        // Credit beyond the ceiling is dropped, so the reserved permits have to be taken first.
        return reserved > 0 && ceiling().isLess(price) ? UNKNOWN : readyIn(now, reserved + n);
    }

    @Override
    public boolean take(long now, long n) {
        settle(now);
        if (isUnlimited()) {
            saving = ZERO;
        } else {
            UInt128 price = units(n);
            if (rate.isZero() || credit.isLess(price)) {
                return false;
            }
            credit = credit.subtract(price);
            returns.take(price);
            if (!saving.isZero()) {
                saving = ZERO;
                dropOverflow();
            }
        }
        taken += n;
        return true;
    }

    @Override
    public long readyIn(long now, long n) {
        settle(now);
        if (rate.isZero()) {
            return UNKNOWN;
        }
        return units(n).add(debt).subtract(credit).divideUp(rate);
    }

    @Override
    public boolean isTooMuch(long n) {
        return n > 1 && !rate.isZero() && permits() < n;
    }

    @Override
    public double maxAtOnce() {
        return permits();
    }

    @Override
    public void saveFor(long now, long n) {
        settle(now);
        saving = units(n);
    }

    @Override
    public void stopSaving(long now) {
        settle(now);
        saving = ZERO;
        dropOverflow();
    }

    @Override
    public Promise promise(long n) {
        return new Promise(n, returns.promise(units(n)));
    }

    @Override
    public void claim(Promise promise) {
        returns.claim(units(promise.n()), promise.era());
    }

    @Override
    public long taken() {
        return taken;
    }

    @Override
    public void handBack(long now, Promise promise) {
        settle(now);
        taken -= Math.min(promise.n(), taken);
        addCredit(returns.end(units(promise.n()), promise.era()));
    }

    @Override
    public long owed(long now) {
        settle(now);
        return debt.isZero() ? 0 : debt.divideUp(UNITS_PER_PERMIT);
    }

    /** Converts permits to units, as exactly as rates are. */
    private static UInt128 depth(double permits) {
        return UInt128.of(Math.min(permits, MAX_PERMITS) * UNITS_PER_RATE).multiply(1_000_000_000);
    }

    static UInt128 units(long permits) {
        return permits == 1 ? UNITS_PER_PERMIT : UNITS_PER_PERMIT.multiply(permits);
    }

    /** Returns the whole permits in units. */
    private static long whole(UInt128 units) {
        return units.divide(UNITS_PER_PERMIT);
    }
}
