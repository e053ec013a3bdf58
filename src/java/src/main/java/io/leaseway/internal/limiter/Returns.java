package io.leaseway.internal.limiter;

/**
 * Tracks how much credit returned permits restore, in units.
 *
 * <p>Returning permits must leave the bucket as if they had never been taken. That may restore less than their price:
 * without them the bucket might have been full meanwhile and overflowed. Restoring the full price would then let more
 * through than capacity and burst allow. So the restored credit is bounded by the smallest room that the bucket has had
 * since the permits were taken.
 *
 * <p>Promised permits are tracked individually. When the room falls below their sum, a new era begins: older promises
 * share the room there was, and later promises are not affected. Two eras are kept. A promise of an earlier era
 * restores nothing, because the bucket was full twice since. Other permits are tracked as a sum, and returns apply to
 * those taken last. If room is short, promises have priority.
 */
final class Returns {
    private long era;
    /** Promised in the current era. */
    private UInt128 fresh = UInt128.ZERO;

    private long agedEra;
    /** Promised in the era before, as far as there was room for it. */
    private UInt128 aged = UInt128.ZERO;
    /** Taken without a promise. */
    private UInt128 spent = UInt128.ZERO;

    /** Records credit that was taken. */
    void take(UInt128 units) {
        spent = spent.add(units);
    }

    /** Reserves credit that was just spent for a waiter. Returns the era of the reservation. */
    long promise(UInt128 units) {
        UInt128 part = UInt128.min(units, spent);
        spent = spent.subtract(part);
        fresh = fresh.add(part);
        return era;
    }

    /** Bounds the credit that can be restored by the room of the bucket. */
    void cut(UInt128 room) {
        if (fresh.isZero() && aged.isZero()) {
            spent = UInt128.min(spent, room);
            return;
        }
        UInt128 promised = fresh.add(aged);
        spent = UInt128.min(spent, room.subtract(promised));
        if (!room.isLess(promised)) {
            return;
        }
        if (!fresh.isZero()) {
            aged = fresh;
            agedEra = era;
            fresh = UInt128.ZERO;
            era++;
        }
        aged = UInt128.min(aged, room);
    }

    /** Ends a promise. Returns how much of it can be restored. */
    UInt128 end(UInt128 units, long promisedIn) {
        if (promisedIn == era) {
            UInt128 back = UInt128.min(units, fresh);
            fresh = fresh.subtract(back);
            return back;
        }
        if (promisedIn == agedEra) {
            UInt128 back = UInt128.min(units, aged);
            aged = aged.subtract(back);
            return back;
        }
        return UInt128.ZERO;
    }

    /** Ends a promise whose permits are used; they may still be returned like others. */
    void claim(UInt128 units, long promisedIn) {
        spent = spent.add(end(units, promisedIn));
    }

    /** Returns credit that was taken without a promise: as much of it as can be restored. */
    UInt128 refund(UInt128 units) {
        UInt128 back = UInt128.min(units, spent);
        spent = spent.subtract(back);
        return back;
    }
}
