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

    volatile State state = State.QUEUED;
    Promise promise;
    Waiter previous;
    Waiter next;

    Waiter(long n, Runnable wake) {
        this.n = n;
        this.wake = wake;
    }
}
