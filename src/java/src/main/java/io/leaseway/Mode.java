package io.leaseway;

import java.util.Locale;

/**
 * What to use when a lease has expired unrenewed, or none could be obtained. The server does not guarantee this
 * capacity, because it counts expired leases as free.
 */
public enum Mode {
    /** Use the safe capacity that the server sent last, and nothing if it sent none. This is the default. */
    SAFE,
    /** Use nothing: callers wait or are refused. For work that can be postponed. */
    PESSIMISTIC,
    /** Use all of the wants. For interactive work on a resource that protects itself. */
    OPTIMISTIC;

    /** Returns the name of the mode in lower case. */
    @Override
    public String toString() {
        return name().toLowerCase(Locale.ROOT);
    }
}
