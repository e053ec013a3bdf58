package io.leaseway.internal.limiter;

/**
 * Decides when permits are available. Rates and gauges differ in their meter; the queue of waiters is that of the
 * FairQueue. Time is nanoseconds since the limiter was created.
 *
 * <p>Permits are reserved for a waiter before its thread has run, and returned if it gives up first. Until then they
 * are a {@link Promise}, as are those of a reservation until it is settled.
 */
interface Meter {
    /** After every other time. */
    long NEVER = Long.MAX_VALUE;

    /** The time until permits are available if that does not depend on time. */
    long UNKNOWN = -1;

    double capacity();

    void setCapacity(long now, double capacity);

    /** The server does not set the burst of a rate any more, because its lease has expired. */
    void dropBuffer();

    /** Returns the permits in use that will be returned; 0 for a rate. */
    long inUse();

    /**
     * Returns 0 if n permits are available beyond reserved ones; otherwise the time until they are, or UNKNOWN if that
     * does not depend on time alone. It takes nothing.
     */
    long check(long now, long reserved, long n);

    /** Takes n permits, or none. */
    boolean take(long now, long n);

    /** Returns the time until n permits are available, if nothing else is taken. */
    long readyIn(long now, long n);

    /** Returns whether n permits are more than can ever be available at once at this capacity, which is not 0. */
    boolean isTooMuch(long n);

    /** Returns the maximum number of permits that can be available at once at this capacity. */
    double maxAtOnce();

    /** The head of the queue needs n permits: save up for it. */
    void saveFor(long now, long n);

    /** The head of the queue has left. */
    void stopSaving(long now);

    /** Turns the n permits that were just taken into a promise. */
    Promise promise(long n);

    /** Ends a promise whose permits are used. */
    void claim(Promise promise);

    /** Ends a promise whose permits are not used. */
    void handBack(long now, Promise promise);

    /** Returns the permits taken and not returned so far. */
    long taken();

    /** Returns the debt in permits. No caller is admitted before it is paid. */
    long owed(long now);
}
