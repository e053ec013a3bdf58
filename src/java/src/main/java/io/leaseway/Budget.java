package io.leaseway;

import io.leaseway.internal.limiter.BudgetBook;
import io.leaseway.internal.limiter.Spender;
import io.leaseway.internal.session.BudgetLease;
import java.time.Duration;
import java.time.Instant;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeoutException;

/**
 * A handle of a budget: a resource of kind BUDGET, which is an amount that may be spent in each period. All handles of a
 * resource of one client share the lease and the book.
 *
 * <p>All clients together never spend more than the amount in a period. A client gets allowances in advance, so spending
 * needs no request most of the time. Callers are served first come, first served, and a wait that is interrupted,
 * cancelled or times out spends nothing. After the expiry of the lease nothing is spent, in any mode. What was spent
 * cannot be returned; for work whose cost is known only at its end, reserve an amount and settle it.
 *
 * <p>Amounts are numbers from 0 to 10^15.
 */
public final class Budget extends Resource {
    private final Spender spender;

    Budget(ResourceState opened) {
        super(opened);
        spender = opened.spender;
    }

    /**
     * Spends an amount if the allowance covers it now and no caller waits. If not, it takes nothing, and the client asks
     * for a larger allowance in the background.
     *
     * @param amount the amount
     */
    public boolean trySpend(double amount) {
        return spender.trySpend(BudgetBook.check(amount)) != Spender.REFUSED;
    }

    /**
     * Waits until the allowance covers an amount, and spends it. No caller that came later is served before. If the
     * budget is spent, this waits for the next period.
     *
     * @param amount the amount
     * @throws InterruptedException if the thread is interrupted first
     * @throws ClosedException if the budget is closed
     */
    public void spend(double amount) throws InterruptedException {
        spendForever(amount);
    }

    /**
     * As {@link #spend(double)}, with a timeout.
     *
     * @param amount the amount
     * @param timeout the maximum time to wait
     * @throws InterruptedException if the thread is interrupted first
     * @throws TimeoutException if the timeout ends first
     * @throws ClosedException if the budget is closed
     */
    public void spend(double amount, Duration timeout) throws InterruptedException, TimeoutException {
        spender.spend(BudgetBook.check(amount), Nanos.of(timeout));
    }

    /**
     * As {@link #spend(double)}, without blocking. A future that is cancelled spends nothing.
     *
     * @param amount the amount
     */
    public CompletableFuture<Void> spendAsync(double amount) {
        return spender.spendAsync(BudgetBook.check(amount));
    }

    /**
     * Waits until the allowance covers an amount, for work whose cost is known only at its end.
     *
     * @param amount the amount
     * @throws InterruptedException if the thread is interrupted first
     * @throws ClosedException if the budget is closed
     */
    public BudgetReservation reserve(double amount) throws InterruptedException {
        return keep(amount, spendForever(amount));
    }

    /**
     * As {@link #reserve(double)}, with a timeout.
     *
     * @param amount the amount
     * @param timeout the maximum time to wait
     * @throws InterruptedException if the thread is interrupted first
     * @throws TimeoutException if the timeout ends first
     * @throws ClosedException if the budget is closed
     */
    public BudgetReservation reserve(double amount, Duration timeout) throws InterruptedException, TimeoutException {
        return keep(amount, spender.spend(BudgetBook.check(amount), Nanos.of(timeout)));
    }

    /**
     * Reserves an amount if the allowance covers it now and no caller waits.
     *
     * @param amount the amount
     */
    public Optional<BudgetReservation> tryReserve(double amount) {
        long era = spender.trySpend(BudgetBook.check(amount));
        return era == Spender.REFUSED ? Optional.empty() : Optional.of(keep(amount, era));
    }

    /**
     * As {@link #reserve(double)}, without blocking. A future that is cancelled spends nothing.
     *
     * @param amount the amount
     */
    public CompletableFuture<BudgetReservation> reserveAsync(double amount) {
        return spender.spendAsync(BudgetBook.check(amount), era -> keep(amount, era), (late, era) -> late.cancel());
    }

    private long spendForever(double amount) throws InterruptedException {
        try {
            return spender.spend(BudgetBook.check(amount), Nanos.FOREVER);
        } catch (TimeoutException e) {
            throw new AssertionError(e);
        }
    }

    private BudgetReservation keep(double amount, long era) {
        if (!opened.retain()) {
            spender.settle(amount, 0, era);
            throw new ClosedException();
        }
        return new BudgetReservation(this, amount, era);
    }

    /** Ends a reservation. */
    void settle(double reserved, double used, long era) {
        spender.settle(reserved, used, era);
        opened.drop();
    }

    /**
     * Returns an amount of this budget, for {@link Client#limits}.
     *
     * @param amount the amount
     */
    public Cost of(double amount) {
        return Cost.amount(opened, amount);
    }

    /**
     * Spends an amount that was used already. What the allowance does not cover is owed: the next allowances pay it
     * before any caller can spend, also those of a later period. Charge before you close the last handle: later charges
     * are not reported.
     *
     * @param amount the amount
     */
    public void charge(double amount) {
        spender.charge(BudgetBook.check(amount));
    }

    /** Returns what was charged and is not covered by an allowance yet. Closing the last handle drops it. */
    public double owed() {
        return spender.owed();
    }

    /** Returns what may be spent now, without asking. */
    public double left() {
        return spender.left();
    }

    /** Returns what this client has spent in the current period, since the budget was opened. */
    public double spent() {
        return spender.spent();
    }

    /**
     * A period of a budget.
     *
     * @param start its start
     * @param end its end
     */
    public record Period(Instant start, Instant end) {}

    /** Returns the current period. It is empty before the first lease, and for a budget that is spent once. */
    public Optional<Period> period() {
        BudgetLease period = spender.period();
        return period == null || period.end() == null
                ? Optional.empty()
                : Optional.of(new Period(instant(period.start()), instant(period.end())));
    }

    /** Returns a time that a server has sent, as far as an instant can say it. */
    private static Instant instant(long unix) {
        long earliest = Instant.MIN.getEpochSecond();
        return Instant.ofEpochSecond(Math.min(Math.max(unix, earliest), Instant.MAX.getEpochSecond()));
    }
}
