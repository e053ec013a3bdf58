package io.leaseway.internal.session;

import java.util.List;

/**
 * The answer to a message on a stream of renewals.
 *
 * @param unix the time of the answer in seconds since the epoch, from which renewed leases count on the wire
 * @param granted new leases
 * @param leftOut the indexes of resources that keep their leases
 * @param isRestart the server does not know this stream: everything has to be stated on another
 */
public record StreamReply(long unix, List<Grant> granted, List<Integer> leftOut, boolean isRestart) {
    /**
     * A new lease.
     *
     * @param index the index of the resource on the stream
     * @param given the lease; its id is ignored
     */
    public record Grant(int index, Given given) {}
}
