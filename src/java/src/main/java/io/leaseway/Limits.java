package io.leaseway;

import io.leaseway.internal.limiter.JointLimiter;
import io.leaseway.internal.limiter.Promise;
import io.leaseway.internal.limiter.Refusal;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * Several limits that an operation needs permits of, made by {@link Client#limits}.
 *
 * <p>A caller takes the permits of all limits at the same moment, or nothing. While it waits it holds nothing. At each
 * limit it is served first come, first served, together with callers that need that limit alone, so a caller that needs
 * much is not starved, and no order of the limits leads to a deadlock. A limit of which 0 permits are needed is not
 * waited for.
 *
 * <p>Limits are cheap, and need not be closed. They do not keep their resources open: the handles do.
 */
public final class Limits implements Limiter {
    private final List<Cost> costs;
    private final JointLimiter joint;

    Limits(List<Cost> costs) {
        this.costs = costs;
        joint = new JointLimiter(costs.stream()
                .map(cost -> new JointLimiter.Part(cost.opened.limiter(), cost.permits()))
                .toList());
    }

    /**
     * Returns the same limits with other numbers of permits.
     *
     * @param permits one number for each limit
     */
    public Limits withPermits(long... permits) {
        check(permits);
        var changed = new ArrayList<Cost>();
        for (int i = 0; i < permits.length; i++) {
            changed.add(new Cost(costs.get(i).opened, permits[i]));
        }
        return new Limits(changed);
    }

    /** Returns the names of the resources, in order. */
    public List<String> resources() {
        return costs.stream().map(Cost::resource).toList();
    }

    /**
     * Waits for the permits of all limits, and takes them together. The permits of gauges are in use until the permit is
     * closed; those of rates are used up.
     *
     * @throws InterruptedException if the thread is interrupted first
     * @throws ClosedException if a limiter is closed
     */
    public Permit acquire() throws InterruptedException {
        await();
        return keep();
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
        joint.acquire(Nanos.of(timeout));
        return keep();
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
        check(joint.tryAcquire());
        return keep();
    }

    /**
     * Waits for the permits of all limits, for work whose cost is known only at its end.
     *
     * @throws InterruptedException if the thread is interrupted first
     * @throws ClosedException if a limiter is closed
     */
    public Reservations reserve() throws InterruptedException {
        await();
        return keepReserved();
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
        joint.acquire(Nanos.of(timeout));
        return keepReserved();
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
        check(joint.tryAcquire());
        return keepReserved();
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
     * Charges each rate for permits that were used already, see {@link Rate#charge}. The numbers of gauges are ignored.
     *
     * @param permits one number for each limit
     * @throws DebtExceededException if the maximum debt of a rate is exceeded; it names the first one, and the others
     *     were charged in full
     */
    public void charge(long... permits) {
        check(permits);
        eachRate(i -> costs.get(i).opened.charge(permits[i]));
    }

    /**
     * Returns to each rate the permits that passed last, because they were not used, see {@link Rate#refund}. The
     * numbers of gauges are ignored: close their permits.
     *
     * @param permits one number for each limit
     */
    public void refund(long... permits) {
        check(permits);
        eachRate(i -> costs.get(i).opened.rate.refund(permits[i]));
    }

    private void await() throws InterruptedException {
        try {
            joint.acquire(Nanos.FOREVER);
        } catch (TimeoutException e) {
            throw new AssertionError(e);
        }
    }

    private void check(Refusal refusal) {
        if (refusal == null) {
            return;
        }
        if (refusal.isClosed()) {
            throw new ClosedException();
        }
        throw new RefusedException(costs.get(refusal.index()).resource(), refusal);
    }

    void check(long... numbers) {
        if (numbers.length != costs.size()) {
            throw new IllegalArgumentException("leaseway: " + numbers.length + " numbers for " + costs.size()
                    + " limits: pass one for each, in order");
        }
        for (long n : numbers) {
            Checks.count(n);
        }
    }

    private interface ForRate {
        void accept(int index);
    }

    /** Does something at each rate, then throws the first exception. */
    void eachRate(ForRate act) {
        DebtExceededException first = null;
        for (int i = 0; i < costs.size(); i++) {
            Opened opened = costs.get(i).opened;
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
    void settle(Promise[] promises, long[] used) {
        joint.release();
        try {
            eachRate(i -> costs.get(i).opened.settle(promises[i], used[i]));
        } finally {
            drop();
        }
    }

    /** Keeps the resources open until the permits are returned. */
    private Permit keep() {
        retain();
        return new Held();
    }

    /** Returns permits that came after the future was cancelled. */
    private void undo(Permit permit) {
        permit.close();
        eachRate(i -> costs.get(i).opened.rate.refund(costs.get(i).permits()));
    }

    private Reservations keepReserved() {
        retain();
        return new Reservations(this, joint.reserve());
    }

    private void retain() {
        for (int i = 0; i < costs.size(); i++) {
            if (!costs.get(i).opened.retain()) {
                joint.release();
                costs.subList(0, i).forEach(cost -> cost.opened.drop());
                throw new ClosedException();
            }
        }
    }

    private void drop() {
        costs.forEach(cost -> cost.opened.drop());
    }

    long[] permits() {
        return costs.stream().mapToLong(Cost::permits).toArray();
    }

    private final class Held extends AtomicBoolean implements Permit {
        private static final long serialVersionUID = 1;

        @Override
        public void close() {
            if (compareAndSet(false, true)) {
                joint.release();
                drop();
            }
        }
    }
}
