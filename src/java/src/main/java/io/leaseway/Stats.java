package io.leaseway;

import java.util.List;

/**
 * A snapshot of the counters of a client and the state of its resources. It is cheap enough to be taken by a metrics
 * collector whenever it is scraped.
 *
 * @param requests requests to servers
 * @param requestErrors failed requests; a redirect is no error
 * @param redirects answers of servers that are not the master
 * @param hints hints of servers that asking at once would change a lease
 * @param leasesEnded leases that have expired unrenewed
 * @param leftOut resources that servers left out of their answers
 * @param uncharged permits that were not charged because the maximum debt was reached
 * @param resources the open resources by name, in ascending order
 */
public record Stats(
        long requests,
        long requestErrors,
        long redirects,
        long hints,
        long leasesEnded,
        long leftOut,
        long uncharged,
        List<ResourceStats> resources) {}
