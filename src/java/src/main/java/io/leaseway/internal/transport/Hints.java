package io.leaseway.internal.transport;

import static io.leaseway.internal.session.Times.MILLISECOND;
import static io.leaseway.internal.session.Times.NEVER;
import static io.leaseway.internal.session.Times.SECOND;

import io.grpc.Status;
import io.leaseway.internal.wire.Hint;
import java.util.List;
import java.util.concurrent.Executor;
import java.util.concurrent.ThreadLocalRandom;

/**
 * Follows the stream of hints of the current master. Servers of the original protocol have no such stream; without it a
 * client depends on its refresh intervals. All methods are called by the thread of the driver, to which events of the
 * stream are passed.
 */
public final class Hints {
    /** The pause after a stream has ended or failed to open. It doubles up to the maximum. */
    static final long PAUSE_FIRST = SECOND;

    static final long PAUSE_MAX = 60 * SECOND;

    /** Clients of a server that is back reopen their streams spread over this time. */
    private static final long JITTER = 100 * MILLISECOND;

    /** The pause after a server without hints, because it may be upgraded. */
    static final long PAUSE_UNSUPPORTED = 600 * SECOND;

    /** Receives hints. */
    public interface Receiver {
        /** Asking for these resources now would change their leases. */
        void hinted(List<String> resources, boolean isEverything);
    }

    private final String client;
    private final Executor driver;
    private final Receiver receiver;
    private Conn conn;
    private Conn.Watch stream;
    /** Counts streams, so that events of earlier ones are ignored. */
    private long generation;
    /** When the stream was opened, and when to open the next one. Times are those of System.nanoTime. */
    private long openedAt;

    private long openAt;
    private boolean isRefused;
    private long nextPause = PAUSE_FIRST;

    public Hints(String client, Executor driver, Receiver receiver) {
        this.client = client;
        this.driver = driver;
        this.receiver = receiver;
    }

    /**
     * Follows the server behind a connection, which has answered as master. A broken stream to it is reopened at once,
     * but no more than once per second, because the answer shows that the server is up.
     */
    public void follow(Conn master) {
        if (conn == master) {
            if (stream == null && !isRefused) {
                long soonest = later(System.nanoTime(), openedAt + PAUSE_FIRST)
                        + ThreadLocalRandom.current().nextLong(JITTER);
                openAt = soonest - openAt < 0 ? soonest : openAt;
            }
            return;
        }
        stop();
        conn = master;
        nextPause = PAUSE_FIRST;
        open();
    }

    private static long later(long a, long b) {
        return a - b > 0 ? a : b;
    }

    /** Returns the connection that is followed, or null. */
    public Conn following() {
        return conn;
    }

    /** Stops following. */
    public void stop() {
        generation++;
        if (stream != null) {
            stream.cancel();
        }
        stream = null;
        conn = null;
    }

    /** Opens a stream if it is time. Returns the time until this has to be called again, or NEVER. */
    public long poll() {
        if (conn == null || stream != null) {
            return NEVER;
        }
        long wait = openAt - System.nanoTime();
        if (wait > 0) {
            return wait;
        }
        open();
        return NEVER;
    }

    private void open() {
        generation++;
        long opened = generation;
        openedAt = System.nanoTime();
        stream = conn.watch(
                client,
                hint -> driver.execute(() -> received(opened, hint)),
                status -> driver.execute(() -> ended(opened, status)));
    }

    void received(long opened, Hint hint) {
        if (opened != generation) {
            return;
        }
        if (stream != null) {
            stream.next();
        }
        // The first message of a stream is empty and does not reset the pause: otherwise two clients with the same id
        // would take the stream from each other forever.
        boolean isEmpty = !hint.getEverything() && hint.getResourceIdCount() == 0;
        if (!isEmpty) {
            nextPause = PAUSE_FIRST;
            receiver.hinted(hint.getResourceIdList(), hint.getEverything());
        }
    }

    private void ended(long opened, Status status) {
        if (opened != generation) {
            return;
        }
        stream = null;
        isRefused = isRefusal(status.getCode());
        openAt = System.nanoTime() + pauseAfter(status.getCode());
    }

    /** Returns the pause after a stream has ended with this code. */
    long pauseAfter(Status.Code code) {
        if (code == Status.Code.UNIMPLEMENTED) {
            return PAUSE_UNSUPPORTED;
        }
        long pause = nextPause;
        nextPause = Math.min(2 * pause, PAUSE_MAX);
        // Jitter, because many clients lose their streams together.
        return (long) (pause * (0.5 + ThreadLocalRandom.current().nextDouble() / 2));
    }

    /**
     * Returns whether a server has refused a stream: another client has it, there are too many, or the server has no
     * hints. Then its answers to requests do not shorten the pause.
     */
    private static boolean isRefusal(Status.Code code) {
        return switch (code) {
            case ABORTED, RESOURCE_EXHAUSTED, UNIMPLEMENTED -> true;
            default -> false;
        };
    }
}
