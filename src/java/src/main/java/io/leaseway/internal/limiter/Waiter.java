package io.leaseway.internal.limiter;

/** An entry of the queue. */
final class Waiter {
    enum State {
        QUEUED,
        /** It was granted its permits, but its thread has not run since. */
        ADMITTED,
        /** The limiter was closed first. */
        REFUSED,
        /** Its permits are used, or it has given up. */
        FINISHED
    }

    final long n;
    /** Called without the lock of the limiter when the waiter is no longer queued. */
    final Runnable wake;
    /** Present if it waits in the queues of other limiters, too; then wake is not. */
    final Ticket ticket;
    /** The number of waiters that had joined before. */
    long place;

    volatile State state = State.QUEUED;
    Promise promise;
    Waiter previous;
    Waiter next;

    Waiter(long n, Runnable wake) {
        this.n = n;
        this.wake = wake;
        this.ticket = null;
    }

    Waiter(long n, Ticket ticket) {
        this.n = n;
        this.wake = null;
        this.ticket = ticket;
    }
}
