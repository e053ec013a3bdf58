package io.leaseway.internal.session;

import static io.leaseway.internal.session.Times.SECOND;
import static io.leaseway.internal.session.Times.after;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Which servers accept streams of renewals, and the stream that is open. */
final class RenewalStream {
    /** How long no stream is opened after one could not be. It doubles while that goes on, up to the maximum. */
    private static final long PAUSE_FIRST = 10 * SECOND;

    private static final long PAUSE_MAX = 600 * SECOND;

    /** A stream with more indexes of resources that are gone is replaced by another. */
    private static final int MAX_GONE = 1000;

    /** The maximum number of servers that accept streams. The peers of a node are fewer. */
    private static final int MAX_OFFERS = 64;

    /**
     * The maximum number of renewals in one message. If all of them needed a new lease, the server would still answer
     * in time, with a message of less than four megabytes.
     */
    static final int MAX_RENEWED = 20_000;

    /** The servers that accept streams, each with the minimum number of resources to use one. */
    private final Map<String, Integer> offers = new HashMap<>();

    private Open open;
    /** The number of the last stream. */
    private long last;
    /** No stream is opened before. */
    private long pausedUntil;
    /** The last pause, or 0. */
    private long pause;

    /** A stream. */
    static final class Open {
        final long number;
        final String target;
        /** The number of the next message. */
        long next = 1;
        /** The resources, by index. */
        final List<String> ids = new ArrayList<>();

        private Open(long number, String target) {
            this.number = number;
            this.target = target;
        }

        /** Returns the resource with this index, or null. */
        String id(int index) {
            return index >= 0 && index < ids.size() ? ids.get(index) : null;
        }
    }

    /**
     * The place of a resource on a stream.
     *
     * @param stream the number of the stream; 0 if the resource was not stated on one
     * @param index its index there
     * @param isKnown the last answer for it was taken, and did not cut its lease
     */
    record Place(long stream, int index, boolean isKnown) {
        static final Place NONE = new Place(0, 0, false);
    }

    /** Reports whether a server accepts streams, from a number of resources on; 0 means that it does not. */
    void offer(String server, int resources) {
        if (resources == 0) {
            offers.remove(server);
        } else if (offers.containsKey(server) || offers.size() < MAX_OFFERS) {
            offers.put(server, resources);
        }
    }

    /** Returns whether to ask on a stream. */
    boolean isUsed(long now, String target, int resources) {
        Integer from = offers.get(target);
        return from != null && resources >= from && (open != null || pausedUntil <= now);
    }

    /** Returns the open stream, or null. */
    Open open() {
        return open;
    }

    /** Returns the open stream to this server, or another one. */
    Open openTo(String target, int resources) {
        if (open == null || !open.target.equals(target) || open.ids.size() > 2 * resources + MAX_GONE) {
            last++;
            open = new Open(last, target);
        }
        return open;
    }

    void giveUp() {
        open = null;
    }

    /** Gives the stream up after a failure. If it was the first message, no other stream is opened for a while. */
    void fail(long now) {
        if (open != null && open.next == 1) {
            pauseFor(now, PAUSE_FIRST);
        }
        giveUp();
    }

    /** Gives the stream up, because the server or a proxy before it does not know streams. */
    void refused(long now) {
        giveUp();
        pauseFor(now, PAUSE_MAX);
    }

    /** Reports that the server has answered a message. */
    void succeeded() {
        open.next++;
        pause = 0;
    }

    private void pauseFor(long now, long least) {
        pause = Math.min(Math.max(2 * pause, least), PAUSE_MAX);
        pausedUntil = after(now, pause);
    }

    /** Returns the ranges of ascending indexes. */
    static List<StreamRequest.Range> ranges(List<Integer> indexes) {
        List<StreamRequest.Range> ranges = new ArrayList<>();
        int first = 0;
        for (int i = 1; i <= indexes.size(); i++) {
            if (i == indexes.size() || indexes.get(i) != indexes.get(i - 1) + 1) {
                ranges.add(new StreamRequest.Range(indexes.get(first), i - first));
                first = i;
            }
        }
        return ranges;
    }
}
