package io.leaseway.internal.session;

import java.util.List;

/**
 * A request to send. Exactly one of asks and releases is not empty.
 *
 * @param number identifies the request when its outcome is reported
 * @param target the server, as HOST:PORT
 * @param deadline when the session abandons the request
 * @param asks the resources to ask for
 * @param releases the leases to release
 */
public record Outgoing(long number, String target, long deadline, List<Ask> asks, List<Release> releases) {}
