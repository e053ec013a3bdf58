/**
 * The client side of the lease protocol, as a state machine without clock, I/O and threads.
 *
 * <p>A {@link io.leaseway.internal.session.Session} keeps the leases of one client with the master of a node. It
 * decides when to send a request and what is in it, which answer still counts, and what may be used once a lease has
 * expired. Time is an argument: nanoseconds since the client started. Randomness comes from a seed.
 *
 * <p>{@code want} adds a resource. {@code poll} returns the next request, if one is due. The owner sends it and reports
 * the outcome with {@code answered}, {@code redirected} or {@code failed}, and then collects what changed with
 * {@code changes}. {@code wake} says when to come back at the latest.
 *
 * <h2>Rules</h2>
 *
 * <ul>
 *   <li>One request is in flight. Only the answer to the latest request counts, and releases are requests, too. A lease
 *       starts when its request was sent, so the client never uses it for longer than the server counts it.
 *   <li>A request names the lease that the client has. If that lease expires before the answer arrives, the answer is
 *       dropped and the resource is asked for again at once, because a new master may have given part of that lease to
 *       others. An expired lease is named as such until there is a new one.
 *   <li>When the first resource is due, one request asks for all of them.
 *   <li>A lease is confirmed by echoing it with the next request. If a lease shrinks, that request follows after 100
 *       ms, because another client may be waiting for the difference.
 *   <li>Pauses after failures grow until every endpoint is tried once per refresh interval. Redirects are followed at
 *       once, up to five in a row.
 *   <li>A release names the newest lease and never overtakes a request in flight. Without a lease to name, nothing is
 *       released: an unnamed release that arrives late could free a newer lease. The unanswered grant expires.
 * </ul>
 *
 * <h2>Renewal by a stream</h2>
 *
 * <p>A client that holds very many leases states what has changed, and renews all others with one message. Each
 * resource gets an index on the stream with the message that states it first. It is renewable while the client has the
 * lease of the last answer and its demand is the one that was stated last; a later message names its index only. A
 * resource is stated again if its demand has changed, if its lease was cut, if it was left out of an answer, or if its
 * last answer did not count, as one that came after the end of the lease that the message named. So a renewal always
 * stands for a request that names the newest lease, with nothing in use beyond it.
 *
 * <p>Messages are requests like others: one is in flight at a time. If its answer does not come, the stream is given
 * up, and everything is stated on another, or by GetCapacity if the server or a proxy does not pass streams. The
 * outcome of a message is reported with {@code streamAnswered}, {@code streamRefused}, {@code redirected} or
 * {@code failed}.
 */
package io.leaseway.internal.session;
