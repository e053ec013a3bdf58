package io.leaseway.internal.transport;

import io.grpc.Status;
import io.grpc.StatusException;
import io.grpc.StatusRuntimeException;
import java.util.List;
import java.util.stream.Collectors;

/** Explains why a request to a server failed. It recognises ports that are not the one for clients. */
public final class Explain {
    private static final String CLIENTS_USE = "clients use --listen, 5100 by default";

    private static final int MAX_QUOTED = 5;
    private static final int MAX_QUOTED_LENGTH = 256;

    private Explain() {}

    public static String failure(String server, Throwable error) {
        if (!(error instanceof StatusException || error instanceof StatusRuntimeException)) {
            return error instanceof Dialer.RefusedException ? error.getMessage() : server + ": " + error;
        }
        Status status = Status.fromThrowable(error);
        String message = describe(status);
        if (says(message, "this server speaks TLS")) {
            return "%s speaks TLS: use https://%s, or set the CA".formatted(server, server);
        }
        if (says(message, "not an SSL/TLS record")) {
            return "%s does not speak TLS: use http://%s, without TLS options".formatted(server, server);
        }
        if (says(message, "PKIX path building failed")) {
            return "the certificate of %s is not signed by a trusted CA: set the CA".formatted(server);
        }
        if (says(message, "Connection refused")) {
            return "%s: connection refused: is the server running?".formatted(server);
        }
        if (says(message, "First received frame was not SETTINGS", "HTTP status code", "content-type")) {
            return "%s does not speak gRPC: this looks like the port of another service; %s"
                    .formatted(server, CLIENTS_USE);
        }
        if (says(message, "Network closed", "Connection closed", "Connection reset", "Broken pipe")) {
            return "%s closed the connection without an answer: it is shutting down, it speaks TLS (use https://%s), or this is the port of another service; %s"
                    .formatted(server, server, CLIENTS_USE);
        }
        boolean isUnknownService = status.getCode() == Status.Code.UNIMPLEMENTED
                && (status.getDescription() == null || says(message, "unknown service"));
        if (isUnknownService) {
            return "%s has no service doorman.Capacity: this looks like the --admin port or the peer port; %s"
                    .formatted(server, CLIENTS_USE);
        }
        return "%s: %s (%s)".formatted(server, message, status.getCode());
    }

    /** Quotes texts of a server for a log: the first few, each on one line and not too long. */
    public static String quoted(List<String> texts) {
        String some = texts.stream().limit(MAX_QUOTED).map(Explain::quoted).collect(Collectors.joining(", "));
        int more = texts.size() - MAX_QUOTED;
        return more > 0 ? some + " and " + more + " more" : some;
    }

    private static String quoted(String text) {
        var quoted = new StringBuilder("\"");
        text.chars().limit(MAX_QUOTED_LENGTH).forEach(c -> {
            if (Character.isISOControl(c)) {
                quoted.append(String.format("\\u%04x", c));
            } else {
                quoted.append((char) c);
            }
        });
        return quoted.append(text.length() > MAX_QUOTED_LENGTH ? "…\"" : "\"").toString();
    }

    /** Explains why a server takes no stream of renewals. */
    public static String refusedStream(String server, Throwable error) {
        Status status = Status.fromThrowable(error);
        return "%s refuses a stream of renewals: %s (%s)".formatted(server, describe(status), status.getCode());
    }

    /** Returns the description of a status and the messages of its causes. */
    private static String describe(Status status) {
        // Further lines are for developers of gRPC.
        String description = status.getDescription() == null ? "" : status.getDescription();
        var text = new StringBuilder(description.lines().findFirst().orElse(""));
        for (Throwable cause = status.getCause(); cause != null; cause = cause.getCause()) {
            String message = cause.getMessage() == null ? cause.toString() : cause.getMessage();
            if (text.indexOf(message) < 0) {
                text.append(text.length() == 0 ? "" : ": ").append(message);
            }
        }
        return text.toString();
    }

    private static boolean says(String message, String... texts) {
        for (String text : texts) {
            if (message.contains(text)) {
                return true;
            }
        }
        return false;
    }
}
