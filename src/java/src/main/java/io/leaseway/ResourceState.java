package io.leaseway;

import io.leaseway.internal.limiter.Demand;
import io.leaseway.internal.limiter.Futures;
import io.leaseway.internal.limiter.GaugeLimiter;
import io.leaseway.internal.limiter.Limiter;
import io.leaseway.internal.limiter.Locked;
import io.leaseway.internal.limiter.Promise;
import io.leaseway.internal.limiter.RateLimiter;
import io.leaseway.internal.limiter.Sample;
import io.leaseway.internal.limiter.Spender;
import io.leaseway.internal.session.Lease;
import io.leaseway.internal.session.Pool;
import io.leaseway.internal.session.Times;
import io.leaseway.internal.session.Usable;
import io.leaseway.internal.session.Usage;
import io.leaseway.internal.session.UsageTracker;
import io.leaseway.internal.session.Wants;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.ReentrantLock;

/** An open resource: the state that all its handles share. */
final class ResourceState {
    /** The kind of a resource, as errors name it. */
    enum Kind {
        RATE("rate"),
        GAUGE("gauge"),
        BUDGET("budget"),
        SHARE("resource without a limiter");

        final String text;

        Kind(String text) {
            this.text = text;
        }
    }

    final Client client;
    final String id;
    final Kind kind;
    /** Those of the first handle. */
    private final ResourceOptions options;

    final Mode mode;
    final long priority;
    /** One of them enforces the capacity; none for a resource without a limiter. */
    final RateLimiter rate;

    final GaugeLimiter gauge;
    final Spender spender;
    /** Counts handles, permits and reservations. At 0 the resource is closed. */
    private final AtomicInteger references = new AtomicInteger(1);
    /** The priority at which the server counts this client. */
    final AtomicLong effectivePriority;
    /** The time of the next estimate of the wants, or NEVER. The lock of the client guards it. */
    long estimateAt = Times.NEVER;

    private final ReentrantLock lock = new ReentrantLock();
    /** Estimates the wants; if it is null, they are fixed. */
    private Demand demand;

    private double fixed;
    /** What was last asked for. */
    private double lastWants;

    private UsageTracker tracker;
    /** The reported usage of a resource without a limiter. */
    private long units;

    private long busy;
    private boolean reportsUse;
    private double inUse;
    private Usable usable = Usable.UNKNOWN;
    private boolean isClosed;
    /** Completed and replaced when usable changes, and when the resource is closed. */
    private CompletableFuture<Void> changed = new CompletableFuture<>();

    ResourceState(Client client, String id, Kind kind, ResourceOptions options, Runnable onPressure) {
        this.client = client;
        this.id = id;
        this.kind = kind;
        this.options = options;
        mode = options.mode();
        priority = options.priority();
        effectivePriority = new AtomicLong(priority);
        rate = kind == Kind.RATE
                ? new RateLimiter(client.start(), options.burst(), options.maxDebt(), onPressure, client.executor())
                : null;
        gauge = kind == Kind.GAUGE ? new GaugeLimiter(client.start(), onPressure, client.executor()) : null;
        spender = kind == Kind.BUDGET ? new Spender(client.start(), onPressure, client.executor()) : null;
        if (options.wants() != null) {
            fixed = options.wants();
        } else {
            demand = new Demand(kind == Kind.GAUGE);
        }
    }

    /** Returns the limiter of a rate or a gauge, or null. */
    Limiter limiter() {
        return rate == null ? gauge : rate;
    }

    boolean estimatesWants() {
        return Locked.get(lock, () -> demand != null);
    }

    /** Checks the settings of another handle. */
    void checkOptions(ResourceOptions others) {
        options.checkOther(others, Locked.get(lock, () -> demand == null ? fixed : null));
    }

    void setFixedWants(double wants) {
        Locked.run(lock, () -> {
            demand = null;
            fixed = wants;
        });
    }

    /** Estimates the wants from now on, if they were fixed. They begin with the fixed ones. */
    void estimateWants() {
        long now = client.now();
        Locked.run(lock, () -> {
            if (demand == null) {
                demand = new Demand(gauge != null, now, fixed);
            }
        });
    }

    void reportUse(long more, long busyFor) {
        Locked.run(lock, () -> {
            units += more;
            busy += Math.max(busyFor, 0);
            reportsUse = true;
        });
    }

    /** Returns whether that changes anything. */
    boolean hold(double amount) {
        return Locked.get(lock, () -> {
            double before = inUse;
            inUse = Math.min(amount > 0 ? amount : 0, Checks.MAX_WANTS);
            return inUse != before;
        });
    }

    /** Returns the demand now. */
    Wants wants(long now) {
        lock.lock();
        try {
            if (spender != null) {
                Wants wants = spender.wants();
                lastWants = wants.amount();
                return wants;
            }
            double amount = fixed;
            double outstanding = inUse;
            // Read the peak once, because reading resets it, and both wants and usage depend on it.
            long peak = 0;
            if (gauge != null) {
                peak = gauge.takePeak();
                outstanding = gauge.outstanding();
            }
            if (demand != null) {
                demand.sample(now, rate != null ? rate.sample() : Sample.ofPeak(peak));
                amount = Math.min(demand.wants(now), Checks.MAX_WANTS);
            }
            lastWants = amount;
            return new Wants(amount, priority, outstanding, usage(now, peak));
        } finally {
            lock.unlock();
        }
    }

    /**
     * Returns the usage of a pool since the last report. It is null if there is neither a limiter nor reported usage:
     * then the server assumes that everything is used.
     */
    private Usage usage(long now, long peak) {
        if (tracker == null) {
            return null;
        }
        if (gauge != null) {
            return tracker.ofGauge(counters(now), peak > 0 ? peak / gauge.capacity() : 0);
        }
        return rate == null && !reportsUse ? null : tracker.ofRate(counters(now));
    }

    private Usage.Counters counters(long now) {
        if (rate != null) {
            RateLimiter.RateUsage used = rate.usage();
            return new Usage.Counters(now, used.taken(), used.recharging());
        }
        return new Usage.Counters(now, gauge != null ? gauge.taken() : units, busy);
    }

    /**
     * Applies the state of a pool from an answer; pool is null if the resource is none. usage is what the request of
     * that answer reported.
     */
    void setPool(long now, long suspended, Pool pool, Usage usage) {
        lock.lock();
        try {
            if (pool == null && tracker == null) {
                return;
            }
            tracker = pool == null ? null : UsageTracker.track(tracker, pool, counters(now), usage);
            setLimiter(suspended);
        } finally {
            lock.unlock();
        }
    }

    /** Returns the state of this client in the pool, or null. */
    Pool pool() {
        return Locked.get(lock, () -> tracker == null ? null : tracker.state());
    }

    /** Applies what may be used. Returns what could be used before, or null if the resource is closed. */
    Usable apply(long suspended, Usable next) {
        CompletableFuture<Void> completed;
        Usable before;
        lock.lock();
        try {
            if (isClosed) {
                return null;
            }
            before = usable;
            // A rise is reported before it is applied and a fall afterwards, so the observer errs upwards.
            if (next.leased() > before.leased()) {
                client.record(id, next.leased());
            }
            completed = setUsable(suspended, next);
            if (next.leased() < before.leased()) {
                client.record(id, next.leased());
            }
        } finally {
            lock.unlock();
        }
        announce(completed);
        return before;
    }

    /** Passes what may be used on to the limiter. Returns the future to complete once the lock is released. */
    private CompletableFuture<Void> setUsable(long suspended, Usable next) {
        boolean isSame = usable.hasSameValue(next);
        usable = next;
        setLimiter(suspended);
        if (isSame) {
            return null;
        }
        return replaceChanged();
    }

    private CompletableFuture<Void> replaceChanged() {
        CompletableFuture<Void> completed = changed;
        changed = new CompletableFuture<>();
        return completed;
    }

    private void announce(CompletableFuture<Void> completed) {
        if (completed == null) {
            return;
        }
        Futures.execute(client.executor(), () -> completed.complete(null));
    }

    /** Passes what may be used on to the limiter, which has a clock that stops during a suspend. */
    private void setLimiter(long suspended) {
        long until = usable.until() == Times.NEVER ? Times.NEVER : usable.until() - suspended;
        if (rate != null) {
            boolean isPool = tracker != null && usable.basis() == Basis.LEASED;
            double buffer = isPool ? tracker.state().burst() / 1e9 : -1;
            rate.setUsable(usable.capacity(), until, usable.then(), buffer);
        } else if (gauge != null) {
            gauge.setUsable(usable.capacity(), until, usable.then());
        } else if (spender != null && usable.basis() != Basis.LEASED) {
            spender.expire();
        }
    }

    /** Gives a budget its newest lease. Returns whether the client should ask again at once. */
    boolean takeAllowance(long suspended, Lease lease) {
        return spender.take(lease, lease.end() - suspended);
    }

    /**
     * What may be used now.
     *
     * @param changed completed when that changes
     * @param isClosed nothing changes any more
     */
    record Current(Usable usable, CompletableFuture<Void> changed, boolean isClosed) {}

    /** Returns what may be used now. A lease that has expired counts as such even if the driver has not run since. */
    Current current() {
        long now = client.now();
        return Locked.get(lock, () -> new Current(usable.at(now), changed, isClosed));
    }

    /** Returns when to estimate wants again, or NEVER if that should wait for the next refresh. */
    long nextSampleAt() {
        return Locked.get(lock, () -> demand == null ? Times.NEVER : demand.nextSampleAt());
    }

    /** Returns whether callers wait or there is debt, and wants are estimated. */
    boolean isUnderPressure() {
        if (spender != null) {
            return spender.hasWaiting();
        }
        Limiter limiter = limiter();
        if (limiter == null) {
            return false;
        }
        long waiting = limiter.waiting() + (rate == null ? 0 : rate.debt());
        return waiting > 0 && estimatesWants();
    }

    /** Closes the limiter: nothing is used from then on. It is idempotent. */
    void closeLimiter() {
        Limiter limiter = limiter();
        if (limiter != null) {
            limiter.close();
        }
        if (spender != null) {
            spender.close();
        }
        CompletableFuture<Void> completed;
        lock.lock();
        try {
            if (isClosed) {
                return;
            }
            // A change that the driver is about to apply comes too late.
            isClosed = true;
            completed = setUsable(0, Usable.UNKNOWN);
            if (completed == null) {
                // Nothing could be used before.
                completed = replaceChanged();
            }
            client.record(id, 0);
        } finally {
            lock.unlock();
        }
        announce(completed);
    }

    boolean isClosed() {
        return Locked.get(lock, () -> isClosed);
    }

    /** Charges a rate for permits that were used already. */
    void charge(long n) {
        checkCharged(rate.charge(n));
    }

    /** Ends a promise of a rate. */
    void settle(Promise promise, long used) {
        checkCharged(rate.settle(promise, used));
    }

    private void checkCharged(long uncharged) {
        if (uncharged > 0) {
            client.countUncharged(uncharged);
            throw new DebtExceededException(uncharged, rate.maxDebt());
        }
    }

    /** Adds a reference. Returns false if the resource is closed. */
    boolean retain() {
        return references.getAndUpdate(n -> n > 0 ? n + 1 : n) > 0;
    }

    void drop() {
        if (references.decrementAndGet() == 0) {
            client.closeResource(this);
        }
    }

    ResourceStats stats(long now) {
        Usable current = current().usable();
        long left = current.basis() == Basis.LEASED ? Math.max(current.until() - now, 0) : 0;
        double wants = Locked.get(lock, () -> lastWants);
        Limiter limiter = limiter();
        return new ResourceStats(
                id,
                current.capacity(),
                current.basis(),
                Duration.ofNanos(left),
                wants,
                limiter == null ? 0 : limiter.arrived(),
                limiter == null ? 0 : limiter.taken(),
                limiter == null ? 0 : limiter.waiting(),
                gauge == null ? 0 : gauge.inUse(),
                rate == null ? 0 : rate.debt());
    }
}
