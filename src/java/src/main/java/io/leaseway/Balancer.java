package io.leaseway;

import java.math.BigInteger;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;
import java.util.function.LongSupplier;
import java.util.function.Predicate;

/**
 * Picks backends by request counting, as httpd's mod_lbmethod_byrequests does: each gets its share of picks, spread out
 * evenly. Shares are fixed weights, or the capacities of leases.
 *
 * <p>A backend is enabled while it has a share, is not paused, and is not in back-off after a failure. A disabled
 * backend accrues nothing, and continues where it was when it is enabled again.
 *
 * <p>A balancer does not wait and has no limiters: it picks the backend of an operation, and the limiter of that backend
 * enforces its lease. {@link Balanced} does both.
 *
 * <p>Backends are identified by their index, whose order also breaks ties. A pick takes time linear in their number. All
 * methods may be called by several threads at the same time.
 *
 * @param <B> the type of the backends
 */
public final class Balancer<B> {
    /** The default back-off of failed backends, as in httpd. */
    public static final Duration RETRY = Duration.ofMinutes(1);

    /** The maximum of a share: shares are milli-units of capacity. */
    private static final long MAX_SHARE = (1L << 47) - 1;

    private static final long MAX_WEIGHT = (1L << 32) - 1;

    private final List<B> backends;
    private final long retry;
    private final LongSupplier clock;

    private final ReentrantLock lock = new ReentrantLock();
    private final List<State> states = new ArrayList<>();
    /** Completed and replaced after each change of a share or of a pause. */
    private CompletableFuture<Void> changed = new CompletableFuture<>();

    private static final class State {
        BigInteger share;
        /** How urgently it has to be picked, in units of shares. */
        BigInteger status = BigInteger.ZERO;

        boolean isPaused;
        /** Whether it is in back-off, and the end of that on the clock. */
        boolean hasFailed;

        long retryAt;

        State(long share) {
            this.share = BigInteger.valueOf(share);
        }
    }

    /**
     * A backend with a weight.
     *
     * @param backend the backend
     * @param weight its share, from 0 to 2^32 - 1; with weight 0 it is never picked
     * @param <B> the type of the backend
     */
    public record Weighted<B>(B backend, long weight) {}

    /**
     * A picked backend, which has been charged for an operation.
     *
     * @param <B> the type of the backend
     */
    public static final class Pick<B> {
        private final Balancer<B> balancer;
        private final int index;

        private Pick(Balancer<B> balancer, int index) {
            this.balancer = balancer;
            this.index = index;
        }

        /** Returns the backend. */
        public B backend() {
            return balancer.backends.get(index);
        }

        /** Returns the index of the backend, for {@link Balancer#pickSticky}. */
        public int index() {
            return index;
        }

        /** Says that the operation failed because of the backend, see {@link Balancer#failed}. */
        public void failed() {
            balancer.failed(index);
        }
    }

    Balancer(List<B> backends, long[] weights, Duration retry, LongSupplier clock) {
        this.backends = List.copyOf(backends);
        this.retry = Nanos.of(retry);
        this.clock = clock;
        for (long weight : weights) {
            states.add(new State(checkWeight(weight)));
        }
    }

    /**
     * Returns a balancer with fixed weights.
     *
     * @param backends the backends with their weights
     * @param <B> the type of the backends
     */
    public static <B> Balancer<B> weighted(List<Weighted<B>> backends) {
        return weighted(backends, RETRY);
    }

    /**
     * Returns a balancer with fixed weights.
     *
     * @param backends the backends with their weights
     * @param retry the back-off of failed backends
     * @param <B> the type of the backends
     */
    public static <B> Balancer<B> weighted(List<Weighted<B>> backends, Duration retry) {
        return new Balancer<>(
                backends.stream().map(Weighted::backend).toList(),
                backends.stream().mapToLong(Weighted::weight).toArray(),
                retry,
                System::nanoTime);
    }

    /**
     * Returns a balancer with weights from leases. A backend is not picked before {@link #setCapacity} sets its lease.
     *
     * @param backends the backends
     * @param <B> the type of the backends
     */
    public static <B> Balancer<B> leased(List<B> backends) {
        return leased(backends, RETRY);
    }

    /**
     * Returns a balancer with weights from leases. A backend is not picked before {@link #setCapacity} sets its lease.
     *
     * @param backends the backends
     * @param retry the back-off of failed backends
     * @param <B> the type of the backends
     */
    public static <B> Balancer<B> leased(List<B> backends, Duration retry) {
        return new Balancer<>(backends, new long[backends.size()], retry, System::nanoTime);
    }

    /** Picks the next backend. It is empty if no backend is enabled. */
    public Optional<Pick<B>> pick() {
        return pickWhere(backend -> true);
    }

    /**
     * Picks the next backend among those that are usable now, such as those with a permit left at their limiter.
     *
     * <p>Calls {@code usable} for the next backend only. If that is not usable, it counts as disabled for this pick, and
     * the one after it is tried. Pause backends that stay unusable, because each pick tries them again. If
     * {@code usable} throws an exception, nothing changes.
     *
     * <p>A lock is held meanwhile: {@code usable} has to be fast, and must not call the balancer.
     *
     * @param usable whether a backend can be used now
     */
    public Optional<Pick<B>> pickWhere(Predicate<? super B> usable) {
        lock.lock();
        try {
            List<State> enabled = enabled();
            while (!enabled.isEmpty()) {
                State next = next(enabled);
                int index = states.indexOf(next);
                if (usable.test(backends.get(index))) {
                    charge(next, enabled);
                    return Optional.of(new Pick<>(this, index));
                }
                enabled.remove(next);
            }
            return Optional.empty();
        } finally {
            lock.unlock();
        }
    }

    /**
     * Picks a certain backend, for sticky sessions. The backend is charged as if it were next, and the others catch up
     * afterwards. It is empty, without any charge, if the backend is not enabled.
     *
     * @param index the index of the backend
     */
    public Optional<Pick<B>> pickSticky(int index) {
        lock.lock();
        try {
            List<State> enabled = enabled();
            State picked = state(index);
            if (!enabled.contains(picked)) {
                return Optional.empty();
            }
            charge(picked, enabled);
            return Optional.of(new Pick<>(this, index));
        } finally {
            lock.unlock();
        }
    }

    /**
     * Sets the capacity of a backend's lease: 0 when it has expired, infinity if there is no limit.
     *
     * <p>Shares are milli-units of capacity, rounded down; a backend with less than one is disabled. Capacities beyond
     * 1.4e11 count as that, and so do unlimited ones: unlimited backends share equally, and others beside them are
     * hardly ever picked.
     *
     * <p>What backends have accrued is rescaled, so that none starves after leases have become much smaller.
     *
     * @param index the index of the backend
     * @param capacity the capacity
     */
    public void setCapacity(int index, double capacity) {
        // The conversion rounds down, NaN becomes 0, and infinity the largest number.
        long milli = Math.min(Math.max((long) (capacity * 1000), 0), MAX_SHARE);
        change(index, state -> rescale(state, BigInteger.valueOf(milli)));
    }

    /**
     * Changes a configured weight. The schedule starts anew.
     *
     * @param index the index of the backend
     * @param weight its share, from 0 to 2^32 - 1
     */
    public void setWeight(int index, long weight) {
        BigInteger share = BigInteger.valueOf(checkWeight(weight));
        change(index, state -> {
            state.share = share;
            states.forEach(any -> any.status = BigInteger.ZERO);
        });
    }

    /**
     * Disables a backend until {@link #resume}, to drain it, or because it cannot be used.
     *
     * @param index the index of the backend
     */
    public void pause(int index) {
        change(index, state -> state.isPaused = true);
    }

    /**
     * Ends a pause.
     *
     * @param index the index of the backend
     */
    public void resume(int index) {
        change(index, state -> state.isPaused = false);
    }

    /**
     * Disables a backend for the back-off, because an operation on it failed. Further failures during the back-off do
     * not prolong it.
     *
     * @param index the index of the backend
     */
    public void failed(int index) {
        lock.lock();
        try {
            endBackOffs();
            State state = state(index);
            if (!state.hasFailed) {
                state.hasFailed = true;
                state.retryAt = clock.getAsLong() + Math.min(retry, Long.MAX_VALUE / 2);
            }
        } finally {
            lock.unlock();
        }
    }

    /**
     * Returns the time until the next back-off ends: how long to wait if no backend is enabled. It is empty if there is
     * no back-off.
     */
    public Optional<Duration> nextRetry() {
        lock.lock();
        try {
            endBackOffs();
            long now = clock.getAsLong();
            return states.stream()
                    .filter(state -> state.hasFailed)
                    .map(state -> Duration.ofNanos(Math.max(state.retryAt - now, 0)))
                    .min(Duration::compareTo);
        } finally {
            lock.unlock();
        }
    }

    /**
     * Returns whether a backend is enabled.
     *
     * @param index the index of the backend
     */
    public boolean isEnabled(int index) {
        lock.lock();
        try {
            return enabled().contains(state(index));
        } finally {
            lock.unlock();
        }
    }

    /** Returns all backends by index. */
    public List<B> backends() {
        return backends;
    }

    /** Returns a future that is completed after the next change of a share or of a pause. */
    CompletableFuture<Void> changed() {
        lock.lock();
        try {
            return changed;
        } finally {
            lock.unlock();
        }
    }

    private void change(int index, Consumer<State> change) {
        lock.lock();
        try {
            change.accept(state(index));
        } finally {
            lock.unlock();
        }
        completeChanged();
    }

    /** Completes {@link #changed}. */
    void completeChanged() {
        CompletableFuture<Void> completed;
        lock.lock();
        try {
            completed = changed;
            changed = new CompletableFuture<>();
        } finally {
            lock.unlock();
        }
        completed.complete(null);
    }

    private State state(int index) {
        return states.get(Objects.checkIndex(index, states.size()));
    }

    private void endBackOffs() {
        for (State state : states) {
            if (state.hasFailed && state.retryAt - clock.getAsLong() <= 0) {
                state.hasFailed = false;
            }
        }
    }

    /** Returns the enabled backends in order. */
    private List<State> enabled() {
        endBackOffs();
        var enabled = new ArrayList<State>(states.size());
        for (State state : states) {
            if (state.share.signum() > 0 && !state.isPaused && !state.hasFailed) {
                enabled.add(state);
            }
        }
        return enabled;
    }

    /** Returns the one with the largest status once each of them has accrued its share: the first one, if several do. */
    private static State next(List<State> enabled) {
        State next = null;
        BigInteger largest = null;
        for (State state : enabled) {
            BigInteger accrued = state.status.add(state.share);
            if (next == null || accrued.compareTo(largest) > 0) {
                next = state;
                largest = accrued;
            }
        }
        return next;
    }

    /** Lets these backends accrue their shares, and charges one of them the sum. */
    private static void charge(State charged, List<State> enabled) {
        enabled.forEach(state -> state.status = state.status.add(state.share));
        charged.status = charged.status.subtract(shares(enabled));
    }

    /**
     * Changes a share, and multiplies each status by the new sum of shares, divided by the old one. For enabled backends
     * the sum is that of enabled backends, for disabled ones it is that of all backends.
     */
    private void rescale(State changed, BigInteger share) {
        if (changed.share.equals(share)) {
            return;
        }
        List<State> enabled = enabled();
        var disabled = new ArrayList<>(states);
        disabled.removeAll(enabled);
        BigInteger allBefore = shares(states);
        BigInteger enabledBefore = shares(enabled);
        BigInteger total = statuses(enabled);
        changed.share = share;
        BigInteger all = shares(states);
        BigInteger enabledNow = shares(enabled);
        disabled.forEach(state -> state.status = scaled(state.status, all, allBefore));
        enabled.forEach(state -> state.status = scaled(state.status, enabledNow, enabledBefore));
        if (!enabled.isEmpty()) {
            // The rounding error goes to the first one, so that the sum is exact.
            State first = enabled.get(0);
            BigInteger rest = scaled(total, enabledNow, enabledBefore).subtract(statuses(enabled));
            first.status = first.status.add(rest);
        }
    }

    /** Rounds toward 0. */
    private static BigInteger scaled(BigInteger status, BigInteger now, BigInteger before) {
        return before.signum() == 0 ? status : status.multiply(now).divide(before);
    }

    private static BigInteger shares(Collection<State> states) {
        return states.stream().map(state -> state.share).reduce(BigInteger.ZERO, BigInteger::add);
    }

    private static BigInteger statuses(Collection<State> states) {
        return states.stream().map(state -> state.status).reduce(BigInteger.ZERO, BigInteger::add);
    }

    private static long checkWeight(long weight) {
        if (weight < 0 || weight > MAX_WEIGHT) {
            throw new IllegalArgumentException("leaseway: weight " + weight + " is not from 0 to " + MAX_WEIGHT);
        }
        return weight;
    }

    /** Returns the backends, for logs. */
    @Override
    public String toString() {
        return "Balancer" + Arrays.toString(backends.toArray());
    }
}
