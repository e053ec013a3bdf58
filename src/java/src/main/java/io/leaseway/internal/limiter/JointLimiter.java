package io.leaseway.internal.limiter;

import io.leaseway.ClosedException;
import io.leaseway.internal.limiter.Ticket.State;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;
import java.util.function.Supplier;

/**
 * Several limiters with a number of permits of each, taken all at once or not at all. Callers are served first come,
 * first served, and hold no permit while they wait. A limiter may be named several times; the numbers add up. One with 0
 * permits is not waited for.
 *
 * <p>A caller that has to wait joins the queues of all its limiters while it has locked them, in the order in which they
 * were created. So one order of arrival holds in all queues. In each, permits are reserved for it when it gets to the
 * head and they are available; callers behind it get only what is left over. Once its permits are reserved at all
 * limiters, it takes them. So it holds nothing while it waits, nobody is starved, and no order of the limiters leads to a
 * deadlock.
 */
public final class JointLimiter {
    /** A limiter and a number of permits of it. Without permits the limiter may be null. */
    public record Part(Limiter limiter, long n) {}

    /** A limiter and the sum of its parts. */
    record Slot(Limiter limiter, long n) {}

    private final List<Part> parts;
    /** The slots in the order of locking. */
    private final List<Slot> slots = new ArrayList<>();
    /** The index of the slot of each part; -1 for one without permits. */
    private final int[] slotOf;

    public JointLimiter(List<Part> parts) {
        this.parts = List.copyOf(parts);
        slotOf = new int[parts.size()];
        var order = new ArrayList<Integer>();
        for (int i = 0; i < parts.size(); i++) {
            slotOf[i] = -1;
            if (parts.get(i).n > 0) {
                order.add(i);
            }
        }
        order.sort(Comparator.comparingLong(i -> parts.get(i).limiter.rank));
        for (int i : order) {
            Part part = parts.get(i);
            int last = slots.size() - 1;
            if (last >= 0 && slots.get(last).limiter == part.limiter) {
                slots.set(last, new Slot(part.limiter, Math.addExact(slots.get(last).n, part.n)));
            } else {
                slots.add(new Slot(part.limiter, part.n));
                last++;
            }
            slotOf[i] = last;
        }
    }

    /**
     * Takes the permits of all limiters and returns null if they are available and no caller waits for them; otherwise
     * says why not. Only limiters that refuse count the request as demand. Takes nothing if other limits, which have
     * parts without permits, have refused already.
     */
    public Refusal tryAcquire(List<Refusal> others) {
        long[] nows = lockAll(slots);
        try {
            return decide(nows, others);
        } finally {
            unlockAll(slots);
        }
    }

    /** Takes the permits of all limiters, which the caller has locked, or none. */
    Refusal decide(long[] nows, List<Refusal> others) {
        var outcomes = new Refusal[parts.size()];
        others.forEach(refusal -> outcomes[refusal.index()] = refusal);
        var claimed = new long[slots.size()];
        for (int i = 0; i < outcomes.length; i++) {
            int slot = slotOf[i];
            if (slot < 0) {
                continue;
            }
            long n = parts.get(i).n;
            Refusal outcome = slots.get(slot).limiter.queue.claim(nows[slot], claimed[slot], n);
            if (outcome == null) {
                claimed[slot] += n;
            } else {
                outcomes[i] = outcome.at(i);
            }
        }
        Refusal slowest = Arrays.stream(outcomes)
                .filter(Objects::nonNull)
                .reduce((slow, next) -> slow.isBefore(next) ? next : slow)
                .orElse(null);
        if (slowest == null) {
            takeChecked(nows);
            return null;
        }
        for (int i = 0; i < outcomes.length; i++) {
            if (slotOf[i] >= 0 && outcomes[i] != null && outcomes[i].isDemand()) {
                slots.get(slotOf[i]).limiter.queue.refuse(parts.get(i).n);
            }
        }
        return slowest;
    }

    private void takeChecked(long[] nows) {
        for (int i = 0; i < nows.length; i++) {
            slots.get(i).limiter.queue.takeChecked(nows[i], slots.get(i).n);
        }
    }

    /**
     * Takes the permits if they are available and no caller waits, and returns null. Otherwise joins the queues of the
     * limiters, which the caller has locked.
     */
    Ticket join(long[] nows, Runnable wake) {
        boolean areFree = true;
        for (int i = 0; i < nows.length; i++) {
            FairQueue queue = slots.get(i).limiter.queue;
            if (queue.isClosed()) {
                throw new ClosedException();
            }
            areFree &= queue.claim(nows[i], 0, slots.get(i).n) == null;
        }
        if (areFree) {
            takeChecked(nows);
            return null;
        }
        return new Ticket(slots, nows, wake);
    }

    private Ticket join(Runnable wake) {
        long[] nows = lockAll(slots);
        try {
            return join(nows, wake);
        } finally {
            unlockAll(slots);
        }
    }

    /** Waits for the permits of all limiters at once. Nothing is taken if there is an exception. */
    public void acquire(long timeout) throws InterruptedException, TimeoutException {
        if (Thread.interrupted()) {
            throw new InterruptedException();
        }
        long begun = System.nanoTime();
        Thread thread = Thread.currentThread();
        Ticket ticket = join(() -> LockSupport.unpark(thread));
        if (ticket == null) {
            return;
        }
        while (ticket.state == State.QUEUED) {
            long left = timeout == Limiter.FOREVER ? timeout : timeout - (System.nanoTime() - begun);
            if (left > 0) {
                LockSupport.parkNanos(this, left);
            }
            if (ticket.state != State.QUEUED) {
                break;
            }
            boolean isInterrupted = Thread.interrupted();
            if (isInterrupted || timeout != Limiter.FOREVER && System.nanoTime() - begun >= timeout) {
                cancel(ticket);
                if (isInterrupted) {
                    throw new InterruptedException();
                }
                throw new TimeoutException("leaseway: no permits before the timeout");
            }
        }
        if (!claim(ticket)) {
            throw new ClosedException();
        }
    }

    /**
     * Waits for the permits of all limiters without blocking. make creates the result. If the future has ended otherwise
     * by then, because it was cancelled, nothing is taken; discard undoes a result that came too late.
     */
    public <T> CompletableFuture<T> acquireAsync(Supplier<T> make, Consumer<T> discard) {
        var future = new CompletableFuture<T>();
        var delivery = new Delivery<>(future, make, discard);
        Ticket ticket;
        try {
            ticket = join(delivery::submit);
        } catch (ClosedException e) {
            return CompletableFuture.failedFuture(e);
        }
        if (ticket == null) {
            delivery.complete();
            return future;
        }
        delivery.begin(ticket);
        future.whenComplete((result, error) -> {
            if (ticket.state == State.QUEUED || ticket.state == State.ADMITTED) {
                cancel(ticket);
            }
        });
        return future;
    }

    /** Completes a future once its ticket is no longer queued. */
    private final class Delivery<T> implements Runnable {
        private final CompletableFuture<T> future;
        private final Supplier<T> make;
        private final Consumer<T> discard;
        /** Completed once the ticket is known: it may be admitted before that. */
        private final CompletableFuture<Ticket> known = new CompletableFuture<>();

        Delivery(CompletableFuture<T> future, Supplier<T> make, Consumer<T> discard) {
            this.future = future;
            this.make = make;
            this.discard = discard;
        }

        void begin(Ticket ticket) {
            known.complete(ticket);
        }

        void submit() {
            Futures.execute(slots.get(0).limiter.executor(), this);
        }

        @Override
        public void run() {
            known.thenAccept(ticket -> {
                if (claim(ticket)) {
                    complete();
                } else if (ticket.state == State.REFUSED) {
                    future.completeExceptionally(new ClosedException());
                }
            });
        }

        void complete() {
            Futures.complete(future, make, discard);
        }
    }

    /** Takes the permits of a ticket that was admitted. Returns false if it was refused, or has ended. */
    private boolean claim(Ticket ticket) {
        lockAll(slots);
        try {
            if (ticket.state != State.ADMITTED) {
                return false;
            }
            ticket.claim();
            return true;
        } finally {
            unlockAll(slots);
        }
    }

    private void cancel(Ticket ticket) {
        long[] nows = lockAll(slots);
        try {
            ticket.cancel(nows);
        } finally {
            unlockAll(slots);
        }
    }

    /** Gives permits back that were just taken. */
    public void undo() {
        release();
        for (Part part : parts) {
            if (part.limiter instanceof RateLimiter rate) {
                rate.refund(part.n);
            }
        }
    }

    /** Returns the permits of gauges. */
    public void release() {
        for (Part part : parts) {
            if (part.limiter instanceof GaugeLimiter gauge && part.n > 0) {
                gauge.release(part.n);
            }
        }
    }

    /** Turns permits of rates that were just taken into promises, by part; null for gauges. */
    public Promise[] reserve() {
        var promises = new Promise[parts.size()];
        for (int i = 0; i < promises.length; i++) {
            if (parts.get(i).limiter instanceof RateLimiter rate) {
                promises[i] = rate.promiseTaken(parts.get(i).n);
            }
        }
        return promises;
    }

    /** Locks the limiters. Returns the time of each. */
    private static long[] lockAll(List<Slot> slots) {
        var nows = new long[slots.size()];
        for (int i = 0; i < nows.length; i++) {
            nows[i] = slots.get(i).limiter.lock();
        }
        return nows;
    }

    /** Unlocks the limiters, wakes waiters, and advances the tickets whose permits have been reserved meanwhile. */
    private static void unlockAll(List<Slot> slots) {
        advanceAll(unlockAllOnly(slots));
    }

    private static List<Ticket> unlockAllOnly(List<Slot> slots) {
        var resolved = new ArrayList<Waiter>();
        var advanced = new ArrayList<Ticket>();
        unlockFrom(0, slots, resolved, advanced);
        Limiter.wake(resolved);
        return advanced;
    }

    /** Unlocks the limiters from an index on, all of them even if one throws an error. */
    private static void unlockFrom(int index, List<Slot> slots, List<Waiter> resolved, List<Ticket> advanced) {
        if (index == slots.size()) {
            return;
        }
        try {
            slots.get(index).limiter.unlock(resolved, advanced);
        } finally {
            unlockFrom(index + 1, slots, resolved, advanced);
        }
    }

    /** Advances tickets, and those that they make way for, in order. No limiter may be locked. */
    static void advanceAll(List<Ticket> tickets) {
        if (tickets.isEmpty()) {
            return;
        }
        var left = new ArrayDeque<>(tickets);
        for (Ticket ticket = left.poll(); ticket != null; ticket = left.poll()) {
            long[] nows = lockAll(ticket.slots);
            boolean isEnded;
            List<Ticket> next;
            try {
                isEnded = ticket.advance(nows);
            } finally {
                next = unlockAllOnly(ticket.slots);
            }
            left.addAll(next);
            if (isEnded) {
                Limiter.wake(ticket::wake);
            }
        }
    }
}
