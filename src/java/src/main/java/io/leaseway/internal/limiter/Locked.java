package io.leaseway.internal.limiter;

import java.util.concurrent.locks.Lock;
import java.util.function.Supplier;

/** Short uses of what a lock guards. */
public final class Locked {
    private Locked() {}

    /** Returns what read returns, which is called with the lock held. */
    public static <T> T get(Lock lock, Supplier<T> read) {
        lock.lock();
        try {
            return read.get();
        } finally {
            lock.unlock();
        }
    }

    /** Calls change with the lock held. */
    public static void run(Lock lock, Runnable change) {
        lock.lock();
        try {
            change.run();
        } finally {
            lock.unlock();
        }
    }
}
