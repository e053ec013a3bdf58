package io.leaseway.internal.session;

import java.util.List;

/**
 * A request to send: for capacity, a release, or a message on a stream of renewals. Lists of other kinds are
 * empty.
 *
 * @param number identifies the request when its outcome is reported
 * @param target the server, as HOST:PORT
 * @param deadline when the session abandons the request
 * @param asks the resources to ask for
 * @param releases the leases to release
 * @param stream the message on a stream of renewals, or null
 */
public record Request(
        long number, String target, long deadline, List<Ask> asks, List<Release> releases, StreamRequest stream) {
    /** Returns what the request asks for, also on a stream. */
    public List<Ask> stated() {
        return stream == null
                ? asks
                : stream.stated().stream().map(StreamRequest.Stated::ask).toList();
    }
}
