package io.leaseway.internal.transport;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.locks.ReentrantLock;

/**
 * The time since the client started, including the time during which the machine was suspended. The monotonic clock
 * stops during a suspend, but leases do not. Its owner serializes updates; any thread may read the time.
 */
public final class Clock {
    private final long start = System.nanoTime();
    /** The same time on a clock that advances during a suspend. */
    private final long boot = bootTime();
    /**
     * The largest difference between the clocks so far. The measured difference varies a little, and time must not run
     * backwards.
     */
    private volatile long suspended;

    /** Returns when the clock was started, as a value of System.nanoTime. */
    public long start() {
        return start;
    }

    /** Returns the time since the start, including suspends up to the last update. */
    public long now() {
        return System.nanoTime() - start + suspended;
    }

    /** Notices suspends. Returns the time since the start. */
    public long update() {
        long elapsed = bootTime() - boot;
        // Delays between the two readings make time advance, never stop.
        suspended = Math.max(suspended, elapsed - (System.nanoTime() - start));
        return now();
    }

    /** Returns how long the machine was suspended. */
    public long suspended() {
        return suspended;
    }

    private static final ReentrantLock LOCK = new ReentrantLock();
    private static final RandomAccessFile UPTIME = openUptime();

    private static RandomAccessFile openUptime() {
        try {
            return new RandomAccessFile("/proc/uptime", "r");
        } catch (IOException | SecurityException e) {
            return null;
        }
    }

    /**
     * Returns a time that advances during a suspend: that since the machine was started where the system has a file
     * with it (Linux, to 10 ms), else that of the wall clock. If the wall clock is set forward, leases expire early and
     * are renewed.
     */
    private static long bootTime() {
        if (UPTIME == null) {
            return System.currentTimeMillis() * 1_000_000;
        }
        byte[] text = new byte[64];
        LOCK.lock();
        try {
            UPTIME.seek(0);
            int length = UPTIME.read(text);
            String line = new String(text, 0, Math.max(length, 0), StandardCharsets.US_ASCII);
            return (long) (Double.parseDouble(line.substring(0, line.indexOf(' '))) * 1e9);
        } catch (IOException | RuntimeException e) {
            // Before every other time, so that it shows no suspend.
            return 0;
        } finally {
            LOCK.unlock();
        }
    }
}
