package io.leaseway.internal.limiter;

import java.util.List;

/**
 * A caller that waits in the queues of several limiters. The locks of all of them guard its state. Like a queue it has
 * no clock: nows has the time of each limiter.
 */
final class Ticket {
    enum State {
        QUEUED,
        /** It has its permits, but its thread has not run since. */
        ADMITTED,
        /** A limiter was closed. */
        REFUSED,
        /** Its permits are used, or it has given up. */
        FINISHED
    }

    final List<JointLimiter.Slot> slots;
    private final Waiter[] waiters;
    /** The permits taken, once it is admitted. */
    private final Promise[] promises;
    /** Called without a lock when it is no longer queued. */
    private final Runnable wake;

    volatile State state = State.QUEUED;

    Ticket(List<JointLimiter.Slot> slots, long[] nows, Runnable wake) {
        this.slots = slots;
        this.wake = wake;
        waiters = new Waiter[slots.size()];
        promises = new Promise[slots.size()];
        for (int i = 0; i < waiters.length; i++) {
            waiters[i] = queue(i).join(nows[i], slots.get(i).n(), this);
        }
    }

    private FairQueue queue(int index) {
        return slots.get(index).limiter().queue;
    }

    void wake() {
        wake.run();
    }

    /**
     * Takes the permits if they are reserved at all limiters, and leaves all queues if one was closed. Returns whether
     * it was queued, and is no longer.
     */
    boolean advance(long[] nows) {
        if (state != State.QUEUED) {
            return false;
        }
        boolean areReserved = true;
        boolean isClosed = false;
        for (int i = 0; i < waiters.length; i++) {
            isClosed |= waiters[i].state == Waiter.State.REFUSED;
            areReserved &= queue(i).isAhead(waiters[i]);
        }
        if (isClosed) {
            leaveQueues(nows);
            state = State.REFUSED;
            return true;
        }
        if (!areReserved) {
            return false;
        }
        for (int i = 0; i < waiters.length; i++) {
            promises[i] = queue(i).takeReserved(nows[i], waiters[i]);
        }
        state = State.ADMITTED;
        return true;
    }

    /** Called by the owner of a ticket that was admitted. The permits are used from here on. */
    void claim() {
        state = State.FINISHED;
        for (int i = 0; i < promises.length; i++) {
            queue(i).meter().claim(promises[i]);
        }
    }

    /** Called when the caller gives up. It takes nothing, also if it was admitted at that moment. */
    void cancel(long[] nows) {
        State before = state;
        state = State.FINISHED;
        if (before == State.QUEUED) {
            leaveQueues(nows);
        } else if (before == State.ADMITTED) {
            for (int i = 0; i < promises.length; i++) {
                queue(i).handBack(nows[i], promises[i]);
            }
        }
    }

    private void leaveQueues(long[] nows) {
        for (int i = 0; i < waiters.length; i++) {
            queue(i).leave(nows[i], waiters[i]);
        }
    }
}
