/**
 * The Java client of Leaseway: a share of something limited — queries per second, tokens per minute, open transactions
 * — for each of many processes, kept up to date in the background.
 *
 * <p>{@link io.leaseway.Client#connect} returns a client. {@link io.leaseway.Client#rate} and
 * {@link io.leaseway.Client#gauge} open resources. No call waits for a server: permits come from the lease, which a
 * thread of the client refreshes.
 *
 * <p>Callers are served first come, first served. A wait that is interrupted, cancelled or times out has taken nothing.
 */
package io.leaseway;
