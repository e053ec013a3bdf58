package io.leaseway.internal.session;

import java.util.ArrayList;
import java.util.List;

/**
 * Chooses the server: one of the configured or learnt endpoints, or the master that they name. It stays with a master
 * that answers, and goes round the endpoints while none does.
 */
final class Route {
    /** The maximum number of redirects in a row. */
    static final int MAX_REDIRECTS = 5;

    /** The maximum number of learnt peers. Further ones are ignored. */
    static final int MAX_LEARNT_PEERS = 64;

    /** The configured endpoints, at least one, followed by the learnt ones. */
    private final List<String> endpoints;

    private final int given;
    /** The index of the endpoint that was tried last. */
    private int tried;

    private String target;
    /** The number of redirects since a master last answered. */
    private int redirects;

    /** Begins with the endpoint that first selects. It is random, so that clients begin with different servers. */
    Route(List<String> endpoints, long first) {
        if (endpoints.isEmpty()) {
            throw new IllegalArgumentException("no endpoint");
        }
        this.endpoints = new ArrayList<>(endpoints);
        given = endpoints.size();
        tried = (int) Long.remainderUnsigned(first, given);
        target = endpoints.get(tried);
    }

    /** Replaces the learnt peers. */
    void learn(List<String> peers) {
        endpoints.subList(given, endpoints.size()).clear();
        for (String peer : peers) {
            if (endpoints.size() >= given + MAX_LEARNT_PEERS) {
                return;
            }
            if (!endpoints.contains(peer)) {
                endpoints.add(peer);
            }
        }
    }

    void succeeded() {
        redirects = 0;
    }

    /**
     * Reports that the target names this master. Returns whether to go there at once. If not, the redirect counts as a
     * failure: servers that name themselves or each other are asked again only after a pause.
     */
    boolean redirected(String master) {
        redirects++;
        if (target.equals(master) || redirects > MAX_REDIRECTS) {
            return false;
        }
        target = master;
        return true;
    }

    /** Moves on to the next endpoint. */
    void failed() {
        redirects = 0;
        tried = (tried + 1) % endpoints.size();
        target = endpoints.get(tried);
    }

    String target() {
        return target;
    }

    List<String> endpoints() {
        return endpoints;
    }
}
