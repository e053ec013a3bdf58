package io.leaseway.internal.limiter;

import io.leaseway.internal.session.BudgetLease;
import io.leaseway.internal.session.BudgetUse;
import io.leaseway.internal.session.Lease;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.util.function.LongSupplier;
import java.util.stream.DoubleStream;

/**
 * The book of a budget: what one incarnation of a client has spent, and how far its allowance goes.
 *
 * <p>The lease of a budget is a cumulative allowance for the period. The book adds up exactly what its incarnation has
 * spent. It never spends beyond the allowance, after the end of the lease, or in another period. Time is an argument, in
 * nanoseconds.
 *
 * <p>What is charged after it was used is <em>owed</em> as far as the allowance does not cover it. The next allowances
 * pay it before anything else is spent. What was spent in advance can be taken back as long as the report that it was
 * spent can be taken back: in the same period, by the same incarnation.
 */
public final class BudgetBook {
    /** The maximum amount of servers. */
    public static final double MAX_AMOUNT = 1e15;

    /** The time constant of the mean rate of spending. */
    private static final double RATE_SECONDS = 5;

    /** The shortest time over which the rate is measured. */
    private static final double MIN_SAMPLE_SECONDS = 0.1;

    /** How long an amount that was refused is asked for: callers that do not wait may try again. */
    private static final long REFUSED_FOR = 60_000_000_000L;

    /**
     * Sums are exact, in units of 2^-52. Every number from 1 upwards is a whole number of these units. Below 1 an amount
     * counts as the next whole number of units, so sums err upwards. Servers count in the same way.
     */
    private static final int UNIT_BITS = 52;

    /** The period of the newest lease, or null before the first one. */
    private BudgetLease period;
    /** The lease that gave the allowance, and the lease that was taken last; 0 for none. */
    private long token;

    private long seen;
    private BigInteger allowance = BigInteger.ZERO;
    /** The end of the lease. */
    private long until = Long.MIN_VALUE;

    private BigInteger sum = BigInteger.ZERO;
    /**
     * The number of times that the book began with nothing spent, with another period or as another incarnation. An
     * amount can be taken back only in the era in which it was spent.
     */
    private long era;
    /** Charged, but not covered by an allowance yet. */
    private BigInteger debt = BigInteger.ZERO;
    /** What callers wait for: in total, and the first of them. */
    private double waiting;

    private double first;
    private double refused;
    private long refusedAt;
    /** The refresh interval of the lease, and the rate of spending per second. */
    private double refreshSeconds = 5;

    private double rate;
    /** When the rate was last updated, and what had been spent then. */
    private long sampledAt;

    private BigInteger sampled = BigInteger.ZERO;
    /** The demand that was last reported. */
    private double wanted;

    private long incarnation;

    /** Creates an empty book. incarnation is a random number other than 0. */
    BudgetBook(long now, long incarnation) {
        sampledAt = now;
        this.incarnation = incarnation;
    }

    /** Returns an amount, or throws IllegalArgumentException unless it is a number from 0 to MAX_AMOUNT. */
    public static double check(double amount) {
        // Also false for NaN.
        if (amount >= 0 && amount <= MAX_AMOUNT) {
            return amount;
        }
        throw new IllegalArgumentException(
                "leaseway: invalid amount " + amount + ": expected a number from 0 to " + MAX_AMOUNT);
    }

    /** Returns the sum of amounts, rounded up. */
    static double sum(DoubleStream amounts) {
        return ceil(amounts.mapToObj(BudgetBook::units).reduce(BigInteger.ZERO, BigInteger::add));
    }

    private static BigInteger units(double amount) {
        return whole(Math.ceil(Math.scalb(amount, UNIT_BITS)));
    }

    private static BigInteger whole(double units) {
        return units < 1L << 53 ? BigInteger.valueOf((long) units) : new BigDecimal(units).toBigInteger();
    }

    /** Returns the largest amount that does not exceed the sum. */
    private static double floor(BigInteger units) {
        double near = units.doubleValue();
        return Math.scalb(whole(near).compareTo(units) > 0 ? Math.nextDown(near) : near, -UNIT_BITS);
    }

    /** Returns the smallest amount that is not less than the sum. */
    private static double ceil(BigInteger units) {
        double near = units.doubleValue();
        return Math.scalb(whole(near).compareTo(units) < 0 ? Math.nextUp(near) : near, -UNIT_BITS);
    }

    /**
     * Takes the newest lease of the session, if it is not known yet. end is its end on the clock of the book. fresh makes
     * the next incarnation, for a client that is told to start over. Returns whether the client should ask again at once.
     */
    boolean take(long now, Lease lease, long end, LongSupplier fresh) {
        BudgetLease newest = lease.budget();
        if (newest == null || lease.token() == 0 || lease.token() == seen) {
            return false;
        }
        if (newest.startsOver() || period == null || period.start() != newest.start()) {
            sum = BigInteger.ZERO;
            sampled = BigInteger.ZERO;
            era++;
        }
        seen = lease.token();
        period = newest;
        refreshSeconds = lease.refresh() / 1e9;
        if (newest.startsOver()) {
            incarnation = fresh.getAsLong();
            token = 0;
            allowance = BigInteger.ZERO;
            expire();
            return true;
        }
        token = lease.token();
        allowance = units(Math.min(lease.capacity(), MAX_AMOUNT));
        until = end;
        pay(now);
        return false;
    }

    /** Pays what is owed, as far as the allowance covers it. */
    private void pay(long now) {
        BigInteger paid = debt.min(unspent(now));
        debt = debt.subtract(paid);
        sum = sum.add(paid);
    }

    /** Returns the part of the allowance that is not spent. It is 0 after the end of the lease. */
    private BigInteger unspent(long now) {
        return now < until && allowance.compareTo(sum) > 0 ? allowance.subtract(sum) : BigInteger.ZERO;
    }

    /** Spends an amount if the allowance covers all of it. */
    boolean spend(long now, double amount) {
        BigInteger after = sum.add(units(amount));
        if (now >= until || debt.signum() > 0 || after.compareTo(allowance) > 0) {
            return false;
        }
        sum = after;
        if (amount >= refused) {
            refused = 0;
        }
        return true;
    }

    /** Returns the current era. */
    long era() {
        return era;
    }

    /**
     * Of an amount that was spent in advance in an era, a part was used. Takes back the rest, unless the era has ended;
     * what exceeds the amount is charged.
     */
    void settle(long now, double reserved, double used, long spentIn) {
        BigInteger excess = units(used).subtract(units(reserved));
        if (excess.signum() >= 0) {
            debt = debt.add(excess);
        } else if (spentIn == era) {
            sum = sum.subtract(sum.min(excess.negate()));
        }
        pay(now);
    }

    /** Spends an amount that was used already. What the allowance does not cover is owed. */
    void charge(long now, double amount) {
        debt = debt.add(units(amount));
        pay(now);
    }

    /** Returns what was charged and is not covered by an allowance yet. */
    double owed() {
        return ceil(debt);
    }

    /** Notes an amount that was refused to a caller that does not wait, so that it is asked for. */
    void refuse(long now, double amount) {
        refused = Math.max(refusedLately(now), amount);
        refusedAt = now;
    }

    private double refusedLately(long now) {
        return now - refusedAt < REFUSED_FOR ? refused : 0;
    }

    /** Returns what may be spent now, without asking. */
    double left(long now) {
        return debt.signum() > 0 ? 0 : floor(unspent(now));
    }

    /** Returns what this incarnation has spent in the current period. */
    double spent() {
        return ceil(sum);
    }

    /** Returns the current period, or null before the first lease. */
    BudgetLease period() {
        return period;
    }

    /** Sets what callers wait for: in total, and the first of them. */
    void setWaiting(double total, double firstAmount) {
        waiting = total;
        first = firstAmount;
    }

    /** Returns whether callers wait, something is owed, or less is left than was refused or half of what was wanted. */
    boolean isShort(long now) {
        double left = left(now);
        return waiting > 0 || debt.signum() > 0 || left < refusedLately(now) || rate > 0 && left < wanted / 2;
    }

    /** The lease has ended: nothing can be spent before the next one. */
    void expire() {
        until = Long.MIN_VALUE;
    }

    /**
     * The demand and the report for a request.
     *
     * @param amount what is spent in two refresh intervals, what callers wait for, what was refused, and what is owed
     * @param use the report
     */
    record Demanded(double amount, BudgetUse use) {}

    /** Returns the demand and the report for a request. */
    Demanded wants(long now) {
        pay(now);
        double elapsed = (now - sampledAt) / 1e9;
        if (elapsed >= MIN_SAMPLE_SECONDS) {
            // Negative if more was taken back than spent.
            double recent = Math.scalb(sum.subtract(sampled).doubleValue(), -UNIT_BITS) / elapsed;
            rate += (recent - rate) * (1 - Math.exp(-elapsed / RATE_SECONDS));
            if (rate < 1e-6) {
                rate = 0;
            }
            sampledAt = now;
            sampled = sum;
        }
        double lately = refusedLately(now);
        wanted = Math.min(Math.ceil(rate * refreshSeconds * 2 + waiting + lately + owed()), MAX_AMOUNT);
        long start = period == null ? 0 : period.start();
        double need = waiting > 0 ? first : lately;
        return new Demanded(wanted, new BudgetUse(spent(), start, incarnation, need, token, isShort(now)));
    }
}
