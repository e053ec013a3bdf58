package io.leaseway.internal.session;

import java.util.function.LongSupplier;

/**
 * A cached minimum of many times. It is recomputed only after the current minimum was removed, because a session may
 * have a hundred thousand resources. The cached value is exact or absent.
 */
final class CachedMin {
    private long first;
    private boolean isKnown;

    /** Reports that a value was added. */
    void insert(long at) {
        first = Math.min(first, at);
    }

    /** Reports that a value was removed. */
    void remove(long at) {
        isKnown = isKnown && first < at;
    }

    void forget() {
        isKnown = false;
    }

    /** Returns the minimum. If it is not cached, find computes it; find returns NEVER if there are no values. */
    long get(LongSupplier find) {
        if (!isKnown) {
            first = find.getAsLong();
            isKnown = true;
        }
        return first;
    }

    /** Returns whether it is known, without recomputing it, that the minimum is after at. */
    boolean isAfter(long at) {
        return isKnown && first > at;
    }
}
