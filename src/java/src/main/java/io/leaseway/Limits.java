package io.leaseway;

import io.leaseway.internal.limiter.JointBudgets;
import io.leaseway.internal.limiter.JointBudgets.Amounts;
import io.leaseway.internal.limiter.Promise;
import io.leaseway.internal.limiter.Refusal;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.IntConsumer;

/**
 * Several limits that an operation needs permits or amounts of, made by {@link Client#limits}.
 *
 * <p>A caller takes the permits of all limits at the same moment, or nothing. While it waits it holds nothing. At each
 * limit it is served first come, first served, together with callers that need that limit alone, so a caller that needs
 * much is not starved, and no order of the limits leads to a deadlock. A limit of which 0 permits are needed is not
 * waited for.
 *
 * <p>Amounts of budgets are reserved before the permits are waited for, and given back if that wait fails. While a caller
 * waits for a budget it holds nothing.
 *
 * <p>Limits are cheap, and need not be closed. They do not keep their resources open: the handles do.
 */
public final class Limits implements Limiter {
    private final List<Cost> costs;
    private final JointBudgets joint;

    Limits(List<Cost> costs) {
        this.costs = costs;
        joint = new JointBudgets(costs.stream().map(Cost::need).toList());
    }

    /**
     * Returns the same limits with other numbers of permits and amounts.
     *
     * @param numbers one number for each limit, in order; those of rates and gauges are whole
     */
    public Limits withPermits(double... numbers) {
        return new Limits(check(numbers));
    }

    /** Returns the names of the resources, in order. */
    public List<String> resources() {
        return costs.stream().map(Cost::resource).toList();
    }

    /**
     * Waits for the permits of all limits, and takes them together. The permits of gauges are in use until the permit is
     * closed; those of rates and amounts of budgets are used up.
     *
     * @throws InterruptedException if the thread is interrupted first
     * @throws ClosedException if a limiter is closed
     */
    public Permit acquire() throws InterruptedException {
        return keep(await());
    }

    /**
     * As {@link #acquire()}, with a timeout.
     *
     * @param timeout the maximum time to wait
     * @throws InterruptedException if the thread is interrupted first
     * @throws TimeoutException if the timeout ends first
     * @throws ClosedException if a limiter is closed
     */
    public Permit acquire(Duration timeout) throws InterruptedException, TimeoutException {
        return keep(joint.acquire(Nanos.of(timeout)));
    }

    /** As {@link #acquire()}, without blocking. A future that is cancelled takes nothing. */
    public CompletableFuture<Permit> acquireAsync() {
        return joint.acquireAsync(this::keep, this::undo);
    }

    /**
     * Takes the permits of all limits if they are available now.
     *
     * @throws RefusedException if a limit refuses; nothing was taken from the others
     * @throws ClosedException if a limiter is closed
     */
    public Permit tryAcquire() {
        return keep(taken(joint.tryAcquire()));
    }

    /**
     * Waits for the permits of all limits, for work whose cost is known only at its end.
     *
     * @throws InterruptedException if the thread is interrupted first
     * @throws ClosedException if a limiter is closed
     */
    public Reservations reserve() throws InterruptedException {
        return keepReserved(await());
    }

    /**
     * As {@link #reserve()}, with a timeout.
     *
     * @param timeout the maximum time to wait
     * @throws InterruptedException if the thread is interrupted first
     * @throws TimeoutException if the timeout ends first
     * @throws ClosedException if a limiter is closed
     */
    public Reservations reserve(Duration timeout) throws InterruptedException, TimeoutException {
        return keepReserved(joint.acquire(Nanos.of(timeout)));
    }

    /** As {@link #reserve()}, without blocking. A future that is cancelled takes nothing. */
    public CompletableFuture<Reservations> reserveAsync() {
        return joint.acquireAsync(this::keepReserved, Reservations::cancel);
    }

    /**
     * Reserves the permits of all limits if they are available now.
     *
     * @throws RefusedException if a limit refuses; nothing was taken from the others
     * @throws ClosedException if a limiter is closed
     */
    public Reservations tryReserve() {
        return keepReserved(taken(joint.tryAcquire()));
    }

    @Override
    public Permit begin() throws InterruptedException {
        return acquire();
    }

    @Override
    public Permit begin(Duration timeout) throws InterruptedException, TimeoutException {
        return acquire(timeout);
    }

    @Override
    public CompletableFuture<Permit> beginAsync() {
        return acquireAsync();
    }

    /**
     * Charges each rate and budget for what was used already, see {@link Rate#charge} and {@link Budget#charge}. The
     * numbers of gauges are ignored.
     *
     * @param numbers one number for each limit, in order; those of rates are whole
     * @throws DebtExceededException if the maximum debt of a rate is exceeded; it names the first one, and the others
     *     were charged in full
     */
    public void charge(double... numbers) {
        for (Cost charged : check(numbers)) {
            if (charged.isBudget()) {
                charged.opened.spender.charge(charged.number());
            }
        }
        eachRate(i -> costs.get(i).opened.charge((long) numbers[i]));
    }

    /**
     * Returns to each rate the permits that passed last, because they were not used, see {@link Rate#refund}. The
     * numbers of gauges are ignored: close their permits. Of a budget, takes back at most what was acquired through this
     * object in the current period; if an operation may end in another period than it began, reserve and settle.
     *
     * @param numbers one number for each limit, in order; those of rates are whole
     */
    public void refund(double... numbers) {
        check(numbers);
        joint.refund(numbers);
        eachRate(i -> costs.get(i).opened.rate.refund((long) numbers[i]));
    }

    private Amounts await() throws InterruptedException {
        try {
            return joint.acquire(Nanos.FOREVER);
        } catch (TimeoutException e) {
            throw new AssertionError(e);
        }
    }

    private Amounts taken(JointBudgets.Attempt attempt) {
        Refusal refusal = attempt.refusal();
        if (refusal == null) {
            return attempt.amounts();
        }
        if (refusal.isClosed()) {
            throw new ClosedException();
        }
        throw new RefusedException(costs.get(refusal.index()), refusal);
    }

    /** Returns costs with these numbers, which it checks. */
    List<Cost> check(double... numbers) {
        if (numbers.length != costs.size()) {
            throw new IllegalArgumentException("leaseway: " + numbers.length + " numbers for " + costs.size()
                    + " limits: pass one for each, in order");
        }
        var changed = new ArrayList<Cost>();
        for (int i = 0; i < numbers.length; i++) {
            changed.add(costs.get(i).with(numbers[i]));
        }
        return changed;
    }

    /** Does something at each rate, then throws the first exception. */
    void eachRate(IntConsumer act) {
        DebtExceededException first = null;
        for (int i = 0; i < costs.size(); i++) {
            ResourceState opened = costs.get(i).opened;
            if (opened.rate == null) {
                continue;
            }
            try {
                act.accept(i);
            } catch (DebtExceededException e) {
                first = first == null ? e.at(opened.id) : first;
            }
        }
        if (first != null) {
            throw first;
        }
    }

    /** Ends a reservation. */
    void settle(Amounts amounts, Promise[] promises, double[] used) {
        joint.release();
        amounts.settle(used);
        try {
            eachRate(i -> costs.get(i).opened.settle(promises[i], (long) used[i]));
        } finally {
            drop();
        }
    }

    /** Keeps the resources open until the permits are returned. */
    private Permit keep(Amounts amounts) {
        retain(amounts);
        amounts.use();
        return new Held(amounts);
    }

    /** Gives back what came after the future was cancelled. */
    private void undo(Permit permit) {
        ((Held) permit).undo();
    }

    private Reservations keepReserved(Amounts amounts) {
        retain(amounts);
        return new Reservations(this, amounts, joint.reserve());
    }

    private void retain(Amounts amounts) {
        for (int i = 0; i < costs.size(); i++) {
            if (!costs.get(i).opened.retain()) {
                joint.undo(amounts);
                costs.subList(0, i).forEach(cost -> cost.opened.drop());
                throw new ClosedException();
            }
        }
    }

    private void drop() {
        costs.forEach(cost -> cost.opened.drop());
    }

    double[] numbers() {
        return costs.stream().mapToDouble(Cost::number).toArray();
    }

    private final class Held implements Permit {
        private final Amounts amounts;
        private final AtomicBoolean isClosed = new AtomicBoolean();

        Held(Amounts amounts) {
            this.amounts = amounts;
        }

        @Override
        public void close() {
            if (isClosed.compareAndSet(false, true)) {
                joint.release();
                drop();
            }
        }

        void undo() {
            joint.undo(amounts);
            drop();
        }
    }
}
