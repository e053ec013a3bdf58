package io.leaseway;

import java.util.List;
import java.util.stream.Collectors;

/** Some resources have no lease yet. The message says why. The client keeps trying. */
public final class NotReadyException extends LeasewayException {
    private static final long serialVersionUID = 1;
    private static final int MAX_NAMED = 5;

    private final transient List<String> resources;

    NotReadyException(List<String> resources, String why, Throwable cause) {
        super("no lease yet for " + named(resources) + ": " + why, cause);
        this.resources = List.copyOf(resources);
    }

    private static String named(List<String> resources) {
        String names =
                resources.stream().limit(MAX_NAMED).map(id -> "\"" + id + "\"").collect(Collectors.joining(", "));
        int more = resources.size() - MAX_NAMED;
        return more > 0 ? names + " and " + more + " more" : names;
    }

    /** Returns the names of the resources, in ascending order. */
    public List<String> resources() {
        return resources == null ? List.of() : resources;
    }
}
