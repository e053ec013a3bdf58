package io.leaseway.internal.limiter;

/** Counts the permits of a gauge in use, promised ones included. */
final class Count implements Meter {
    private double capacity;
    private long used;
    private long taken;

    /** Returns permits. */
    void giveBack(long n) {
        used -= Math.min(n, used);
    }

    /** Returns the capacity in whole permits: 2.9 allows two. */
    private long whole() {
        return (long) capacity;
    }

    @Override
    public double capacity() {
        return capacity;
    }

    @Override
    public void setCapacity(long now, double capacity) {
        this.capacity = capacity;
    }

    @Override
    public void dropBuffer() {}

    @Override
    public long inUse() {
        return used;
    }

    @Override
    public long check(long now, long reserved, long n) {
        return n > whole() - used - reserved ? UNKNOWN : 0;
    }

    @Override
    public boolean take(long now, long n) {
        if (n > whole() - used) {
            return false;
        }
        used += n;
        taken += n;
        return true;
    }

    @Override
    public long readyIn(long now, long n) {
        return UNKNOWN;
    }

    @Override
    public boolean isTooMuch(long n) {
        return whole() > 0 && whole() < n;
    }

    @Override
    public double maxAtOnce() {
        return Math.floor(capacity);
    }

    @Override
    public void saveFor(long now, long n) {}

    @Override
    public void stopSaving(long now) {}

    @Override
    public Promise promise(long n) {
        return new Promise(n, 0);
    }

    @Override
    public void claim(Promise promise) {}

    @Override
    public void handBack(long now, Promise promise) {
        taken -= Math.min(promise.n(), taken);
        giveBack(promise.n());
    }

    @Override
    public long taken() {
        return taken;
    }

    @Override
    public long owed(long now) {
        return 0;
    }
}
