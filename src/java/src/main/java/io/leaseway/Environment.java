package io.leaseway;

import io.grpc.ChannelCredentials;
import io.grpc.TlsChannelCredentials;
import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Path;
import java.util.Locale;
import java.util.Map;

/** Reads settings from environment variables, see {@link Client#fromEnvironment}. */
final class Environment {
    private Environment() {}

    static ClientBuilder builder(Map<String, String> variables) {
        var builder = new ClientBuilder();
        String servers = variables.getOrDefault("LEASEWAY_SERVER", "");
        builder.endpoints((servers.isEmpty() ? "127.0.0.1:5100" : servers).split(","));
        String ca = variables.getOrDefault("LEASEWAY_TLS_CA", "");
        String certificate = variables.getOrDefault("LEASEWAY_TLS_CERT", "");
        String key = variables.getOrDefault("LEASEWAY_TLS_KEY", "");
        String name = variables.getOrDefault("LEASEWAY_TLS_SERVER_NAME", "");
        if (certificate.isEmpty() != key.isEmpty()) {
            throw new OptionException("LEASEWAY_TLS_CERT", "a certificate needs its key in LEASEWAY_TLS_KEY");
        }
        boolean isSecured = isSet(variables, "LEASEWAY_TLS") || !(ca + certificate + name).isEmpty();
        if (isSecured) {
            check("LEASEWAY_TLS_CA", ca, "", "");
            check("LEASEWAY_TLS_CERT", "", certificate, key);
            builder.tls(() -> credentials(ca, certificate, key));
        }
        if (!name.isEmpty()) {
            builder.serverName(name);
        }
        String tokenFile = variables.getOrDefault("LEASEWAY_TOKEN_FILE", "");
        if (!tokenFile.isEmpty()) {
            builder.tokenFile(Path.of(tokenFile));
        }
        if (isSet(variables, "LEASEWAY_INSECURE")) {
            builder.allowClearToken();
        }
        return builder;
    }

    private static void check(String variable, String ca, String certificate, String key) {
        try {
            credentials(ca, certificate, key);
        } catch (UncheckedIOException | IllegalArgumentException e) {
            throw new OptionException(variable, e.getMessage());
        }
    }

    private static ChannelCredentials credentials(String ca, String certificate, String key) {
        try {
            var credentials = TlsChannelCredentials.newBuilder();
            if (!ca.isEmpty()) {
                credentials.trustManager(new File(ca));
            }
            if (!certificate.isEmpty()) {
                credentials.keyManager(new File(certificate), new File(key));
            }
            return credentials.build();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** Returns whether a variable switches something on. */
    private static boolean isSet(Map<String, String> variables, String variable) {
        return switch (variables.getOrDefault(variable, "").toLowerCase(Locale.ROOT)) {
            case "", "0", "false", "no", "off" -> false;
            default -> true;
        };
    }
}
