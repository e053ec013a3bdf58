package io.leaseway.internal.limiter;

import static io.leaseway.internal.limiter.Meter.NEVER;
import static io.leaseway.internal.limiter.Meter.UNKNOWN;

import io.leaseway.ClosedException;
import io.leaseway.internal.limiter.Waiter.State;
import java.util.ArrayList;
import java.util.List;

/**
 * A fair semaphore over a meter. Callers are served first come, first served. It keeps the queue of waiters; the meter
 * decides when the waiter at the head can be admitted. It has no clock and no lock: its owner calls tick at the time
 * that wake says, and wakes the waiters of takeResolved.
 */
final class FairQueue {
    private final Meter meter;
    private final Runnable onPressure;
    private Waiter head;
    private Waiter tail;
    /** At this time the lease expires, and the capacity becomes then. */
    private long until = NEVER;

    private double then;
    /** The sum of permits that queued waiters want. */
    private long waiting;
    /** The permits requested so far, and those requested while the queue was empty. */
    private long arrived;

    private long arrivedFreely;
    /** The permits returned unused so far. */
    long refunded;
    /** When the head of the queue can be admitted, or UNKNOWN if that does not depend on time alone. */
    private long due = UNKNOWN;
    /** The number of pending permits at the last notification of pressure. */
    private long notifiedAt;
    /** The peak of permits in use and wanted since it was last read. */
    private long peak;
    /** The total time with a non-empty queue, up to the moment it was last empty. */
    private long queued;
    /** Since when the queue has been non-empty, or UNKNOWN. */
    private long queuedSince = UNKNOWN;

    private boolean isClosed;
    private List<Waiter> resolved = List.of();

    FairQueue(Meter meter, Runnable onPressure) {
        this.meter = meter;
        this.onPressure = onPressure;
    }

    Meter meter() {
        return meter;
    }

    long waiting() {
        return waiting;
    }

    long arrived() {
        return arrived;
    }

    long arrivedFreely() {
        return arrivedFreely;
    }

    boolean isEmpty() {
        return head == null;
    }

    /** Brings the queue up to now: the lease may have expired, and waiters may be due. Every use begins with it. */
    void tick(long now) {
        if (now >= until) {
            setCapacity(until, then, NEVER, 0);
        }
        if (due != UNKNOWN && now >= due) {
            admit(now);
        }
    }

    /** Returns when tick has to be called at the latest, or NEVER. */
    long wake() {
        return due == UNKNOWN ? NEVER : due;
    }

    /** Takes the waiters that have been admitted or refused since the last call. */
    List<Waiter> takeResolved() {
        List<Waiter> taken = resolved;
        resolved = List.of();
        return taken;
    }

    /** Sets the capacity, which holds until the lease expires, and the capacity that follows. */
    void setCapacity(long now, double capacity, long newUntil, double newThen) {
        until = newUntil;
        then = newThen;
        if (newUntil == NEVER) {
            // The burst of a pool counts while its lease is in force.
            meter.dropBuffer();
        }
        meter.setCapacity(now, capacity);
        admit(now);
    }

    /** Takes n permits if they are available and no caller waits. */
    boolean tryAcquire(long now, long n) {
        tick(now);
        if (isClosed || meter.isTooMuch(n)) {
            return false;
        }
        arrive(n);
        return takeUnqueued(now, n);
    }

    /** Takes n permits and returns null, or joins the queue and returns the waiter. */
    Waiter acquire(long now, long n, Runnable wake) {
        tick(now);
        if (isClosed) {
            throw new ClosedException();
        }
        arrive(n);
        if (takeUnqueued(now, n)) {
            return null;
        }
        long before = pending(now);
        var waiter = new Waiter(n, wake);
        waiter.previous = tail;
        if (tail == null) {
            head = waiter;
            queuedSince = now;
        } else {
            tail.next = waiter;
        }
        tail = waiter;
        waiting += n;
        raisePressure(now, before);
        if (head == waiter) {
            // The queue was empty and the meter has just refused: this only records the due time.
            admit(now);
        }
        return waiter;
    }

    /** Called by the thread of a waiter that is no longer queued. */
    void finish(Waiter waiter) {
        if (waiter.state == State.REFUSED) {
            throw new ClosedException();
        }
        meter.claim(waiter.promise);
        waiter.state = State.FINISHED;
    }

    /** Called when a waiter gives up. It takes nothing, also if it was its turn at that moment. */
    void leave(long now, Waiter waiter) {
        tick(now);
        State state = waiter.state;
        waiter.state = State.FINISHED;
        if (state == State.QUEUED) {
            boolean wasHead = head == waiter;
            unlink(now, waiter);
            waiting -= waiter.n;
            if (wasHead) {
                meter.stopSaving(now);
                admit(now);
            }
        } else if (state == State.ADMITTED) {
            meter.handBack(now, waiter.promise);
            admit(now);
        }
    }

    /** Admits waiters from the head while the meter allows it, and records when the next can be admitted. */
    void admit(long now) {
        due = UNKNOWN;
        while (head != null) {
            Waiter waiter = head;
            if (!meter.take(now, waiter.n)) {
                meter.saveFor(now, waiter.n);
                long wait = meter.readyIn(now, waiter.n);
                if (wait != UNKNOWN) {
                    due = wait < NEVER - now ? now + wait : NEVER;
                }
                return;
            }
            waiting -= waiter.n;
            waiter.promise = meter.promise(waiter.n);
            resolve(now, waiter, State.ADMITTED);
        }
    }

    void close(long now) {
        isClosed = true;
        while (head != null) {
            resolve(now, head, State.REFUSED);
        }
        waiting = 0;
        due = UNKNOWN;
        meter.stopSaving(now);
    }

    private void resolve(long now, Waiter waiter, State state) {
        unlink(now, waiter);
        waiter.state = state;
        if (resolved.isEmpty()) {
            resolved = new ArrayList<>();
        }
        resolved.add(waiter);
    }

    private void unlink(long now, Waiter waiter) {
        if (waiter.previous == null) {
            head = waiter.next;
        } else {
            waiter.previous.next = waiter.next;
        }
        if (waiter.next == null) {
            tail = waiter.previous;
        } else {
            waiter.next.previous = waiter.previous;
        }
        waiter.previous = null;
        waiter.next = null;
        if (head == null) {
            queued += Math.max(now - queuedSince, 0);
            queuedSince = UNKNOWN;
        }
    }

    /** Counts a request. */
    void arrive(long n) {
        arrived += n;
        if (head == null) {
            arrivedFreely += n;
        }
    }

    /** Takes permits without queueing, if the queue is empty. */
    private boolean takeUnqueued(long now, long n) {
        boolean taken = n == 0 || head == null && meter.take(now, n);
        // A refused caller is demand, too.
        peak = Math.max(peak, taken ? demanded() : demanded() + n);
        return taken;
    }

    private long demanded() {
        return meter.inUse() + waiting;
    }

    /** Returns the peak since the last call of the sum of permits in use, waited for and refused. */
    long takePeak() {
        long taken = Math.max(peak, demanded());
        peak = demanded();
        return taken;
    }

    /** Returns the permits that are waited for or owed. */
    long pending(long now) {
        return waiting + meter.owed(now);
    }

    /**
     * Called when more permits are pending than before. It notifies when permits become pending, and again each time
     * their number has doubled.
     */
    void raisePressure(long now, long before) {
        if (before == 0) {
            notifiedAt = 0;
        }
        long pending = pending(now);
        if (pending >= Math.max(2 * notifiedAt, 1)) {
            notifiedAt = pending;
            onPressure.run();
        }
    }

    /** Returns the total time with a non-empty queue. */
    long queuedTime(long now) {
        return queuedSince == UNKNOWN ? queued : queued + Math.max(now - queuedSince, 0);
    }
}
