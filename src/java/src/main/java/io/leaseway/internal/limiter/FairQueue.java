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
 * that wake says, wakes the waiters of takeResolved, and advances the tickets of takeAdvanced.
 *
 * <p>A request for permits of several limiters waits in the queues of all of them, see {@link Ticket}. When it gets to
 * the head of a queue and its permits are available, they are reserved: it keeps its place, and waiters behind it are
 * admitted from the rest. The frontier is the first waiter whose permits are neither granted nor reserved.
 */
final class FairQueue {
    private final Meter meter;
    private final Runnable onPressure;
    private Waiter head;
    private Waiter tail;
    private Waiter frontier;
    /** The sum of permits reserved for the waiters ahead of the frontier. */
    private long reserved;
    /** The number of waiters that have joined so far. */
    private long joined;
    /** At this time the lease expires, and the capacity becomes then. */
    private long until = NEVER;

    private double then;
    /** The sum of permits that the waiters from the frontier on want. */
    private long waiting;
    /** The permits requested so far, and those requested while no caller waited. */
    private long arrived;

    private long arrivedFreely;
    /** The permits returned unused so far. */
    long refunded;
    /** When the frontier can be admitted, or UNKNOWN if that does not depend on time alone. */
    private long due = UNKNOWN;
    /** The number of pending permits at the last notification of pressure. */
    private long notifiedAt;
    /** The peak of permits in use and wanted since it was last read. */
    private long peak;
    /** The total time with waiting callers, up to the last moment without any. */
    private long queued;
    /** Since when callers have been waiting, or UNKNOWN. */
    private long queuedSince = UNKNOWN;

    private boolean isClosed;
    private List<Waiter> resolved = List.of();
    private List<Ticket> advanced = List.of();

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

    /** Returns the permits that are reserved for callers that still wait for permits of other limiters. */
    long reserved() {
        return reserved;
    }

    /** Returns whether callers wait for permits that are not reserved for them. */
    boolean hasWaiters() {
        return frontier != null;
    }

    boolean isClosed() {
        return isClosed;
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

    /** Returns whether takeResolved or takeAdvanced would return any. */
    boolean hasResolved() {
        return !resolved.isEmpty() || !advanced.isEmpty();
    }

    /** Takes the waiters that have been admitted or refused since the last call. */
    List<Waiter> takeResolved() {
        List<Waiter> taken = resolved;
        resolved = List.of();
        return taken;
    }

    /** Takes the tickets whose permits are reserved here since the last call, or that were refused. */
    List<Ticket> takeAdvanced() {
        List<Ticket> taken = advanced;
        advanced = List.of();
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
        push(now, waiter);
        raisePressure(now, before);
        if (frontier == waiter) {
            // Nobody waited and the meter has just refused: this only records the due time.
            admit(now);
        }
        return waiter;
    }

    private void push(long now, Waiter waiter) {
        waiter.place = joined++;
        waiter.previous = tail;
        if (tail == null) {
            head = waiter;
        } else {
            tail.next = waiter;
        }
        tail = waiter;
        if (frontier == null) {
            setFrontier(now, waiter);
        }
        waiting += waiter.n;
    }

    /** Sets the frontier; null if no caller waits. */
    private void setFrontier(long now, Waiter waiter) {
        if (waiter == null && queuedSince != UNKNOWN) {
            queued += Math.max(now - queuedSince, 0);
            queuedSince = UNKNOWN;
        } else if (waiter != null && queuedSince == UNKNOWN) {
            queuedSince = now;
        }
        frontier = waiter;
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
            if (unlink(now, waiter)) {
                admit(now);
            }
        } else if (state == State.ADMITTED) {
            handBack(now, waiter.promise);
        }
    }

    /** Ends a promise whose permits are not used. */
    void handBack(long now, Promise promise) {
        meter.handBack(now, promise);
        admit(now);
    }

    /** Admits waiters from the frontier on while the meter allows it, and records when the next can be admitted. */
    void admit(long now) {
        if (reserved > 0 && meter.check(now, reserved, 0) != 0) {
            // The capacity was cut, or permits were charged.
            waiting += reserved;
            reserved = 0;
            setFrontier(now, head);
        }
        advanceFrontier(now);
        saveForFront(now);
    }

    /** Saves up for the waiter at the front, also if its permits are reserved. Taking permits ends that. */
    private void saveForFront(long now) {
        if (head != null) {
            meter.saveFor(now, head.n);
        }
    }

    /** Moves the frontier, and records when it can be moved again. */
    private void advanceFrontier(long now) {
        due = UNKNOWN;
        while (frontier != null) {
            Waiter waiter = frontier;
            long wait = meter.check(now, reserved, waiter.n);
            if (wait != 0) {
                if (wait != UNKNOWN) {
                    due = wait < NEVER - now ? now + wait : NEVER;
                }
                return;
            }
            setFrontier(now, waiter.next);
            waiting -= waiter.n;
            if (waiter.ticket != null) {
                reserved += waiter.n;
                advance(waiter.ticket);
                continue;
            }
            meter.take(now, waiter.n);
            waiter.promise = meter.promise(waiter.n);
            resolve(waiter, State.ADMITTED);
        }
    }

    void close(long now) {
        isClosed = true;
        while (head != null) {
            resolve(head, State.REFUSED);
        }
        setFrontier(now, null);
        waiting = 0;
        reserved = 0;
        due = UNKNOWN;
        meter.stopSaving(now);
    }

    private void resolve(Waiter waiter, State state) {
        detach(waiter);
        waiter.state = state;
        if (waiter.ticket != null) {
            advance(waiter.ticket);
            return;
        }
        if (resolved.isEmpty()) {
            resolved = new ArrayList<>();
        }
        resolved.add(waiter);
    }

    private void advance(Ticket ticket) {
        if (advanced.isEmpty()) {
            advanced = new ArrayList<>();
        }
        advanced.add(ticket);
    }

    /** Returns whether a queued waiter is ahead of the frontier, so that its permits are reserved. */
    boolean isAhead(Waiter waiter) {
        return frontier == null || waiter.place < frontier.place;
    }

    /** Takes a queued waiter out of the queue. Returns whether others may be admitted now. */
    private boolean unlink(long now, Waiter waiter) {
        boolean isFront = head == waiter;
        boolean isAhead = isAhead(waiter);
        boolean isFrontier = frontier == waiter;
        if (isAhead) {
            reserved -= waiter.n;
        } else {
            waiting -= waiter.n;
        }
        if (isFrontier) {
            setFrontier(now, waiter.next);
        }
        detach(waiter);
        if (isFront) {
            meter.stopSaving(now);
        }
        return isAhead || isFrontier;
    }

    private void detach(Waiter waiter) {
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
    }

    /** Counts a request. */
    void arrive(long n) {
        arrived += n;
        if (frontier == null) {
            arrivedFreely += n;
        }
    }

    /** Returns whether n permits can be taken beyond claimed ones without overtaking a waiter. */
    private boolean areFree(long now, long claimed, long n) {
        return frontier == null && meter.check(now, reserved + claimed, n) == 0;
    }

    /** Takes permits without queueing, if no caller waits. */
    private boolean takeUnqueued(long now, long n) {
        boolean taken = n == 0;
        if (!taken && reserved == 0) {
            taken = frontier == null && meter.take(now, n);
        } else if (!taken && areFree(now, 0, n)) {
            taken = meter.take(now, n);
            saveForFront(now);
        }
        // A refused caller is demand, too.
        peak = Math.max(peak, taken ? demanded() : demanded() + n);
        return taken;
    }

    private long demanded() {
        return meter.inUse() + waiting + reserved;
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

    /** Returns the total time with waiting callers. */
    long queuedTime(long now) {
        return queuedSince == UNKNOWN ? queued : queued + Math.max(now - queuedSince, 0);
    }

    // Requests for permits of several limiters.

    /** Returns why n permits cannot be taken beyond claimed ones, or null. Takes nothing. */
    Refusal claim(long now, long claimed, long n) {
        if (isClosed) {
            return Refusal.closed();
        }
        long all = claimed + n;
        if (meter.isTooMuch(all)) {
            return Refusal.tooMany(meter.maxAtOnce());
        }
        return areFree(now, claimed, n) ? null : Refusal.notNow(meter.readyIn(now, waiting + reserved + all));
    }

    /** Takes permits that are free. */
    void takeChecked(long now, long n) {
        arrive(n);
        takeUnqueued(now, n);
    }

    /** Counts refused permits as demand. */
    void refuse(long n) {
        arrive(n);
        peak = Math.max(peak, demanded() + n);
    }

    /** Joins the queue. */
    Waiter join(long now, long n, Ticket ticket) {
        arrive(n);
        long before = pending(now);
        var waiter = new Waiter(n, ticket);
        push(now, waiter);
        admit(now);
        if (!isAhead(waiter)) {
            raisePressure(now, before);
        }
        peak = Math.max(peak, demanded());
        return waiter;
    }

    /** Takes the reserved permits of a waiter. */
    Promise takeReserved(long now, Waiter waiter) {
        // Taken before it leaves the queue, because then the meter stops saving up for it.
        meter.take(now, waiter.n);
        Promise promise = meter.promise(waiter.n);
        unlink(now, waiter);
        waiter.state = State.FINISHED;
        admit(now);
        return promise;
    }
}
