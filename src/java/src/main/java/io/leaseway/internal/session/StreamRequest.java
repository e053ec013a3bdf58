package io.leaseway.internal.session;

import java.util.List;

/**
 * A message on a stream of renewals.
 *
 * @param stream identifies the stream within its session
 * @param sequence the number of the message; the first of a stream has number 1
 * @param stated new and changed resources
 * @param renewed the indexes of the resources to renew
 */
public record StreamRequest(long stream, long sequence, List<Stated> stated, List<Range> renewed) {
    /**
     * A resource that is stated.
     *
     * @param index its index on the stream
     * @param ask the request for it
     */
    public record Stated(int index, Ask ask) {}

    /**
     * A range of indexes on a stream.
     *
     * @param first the first index
     * @param count the number of indexes
     */
    public record Range(int first, int count) {}
}
