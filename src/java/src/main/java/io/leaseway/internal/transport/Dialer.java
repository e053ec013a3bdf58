package io.leaseway.internal.transport;

import io.grpc.ChannelCredentials;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannelBuilder;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

/**
 * Makes connections.
 *
 * @param tls the credentials of new connections, or null for connections without TLS
 * @param serverName the name that certificates of servers must be for, or null for that of the address
 * @param token sent with every request, or null
 * @param isClearTokenAllowed the token may be sent without TLS to other machines
 * @param userAgent the name of this program
 */
public record Dialer(
        Supplier<ChannelCredentials> tls,
        String serverName,
        Token token,
        boolean isClearTokenAllowed,
        String userAgent) {
    /** These detect hosts that vanished while a call or a stream is open. */
    private static final int KEEP_ALIVE_SECONDS = 10;

    private static final int KEEP_ALIVE_TIMEOUT_SECONDS = 5;

    /** A connection was not made. */
    public static final class RefusedException extends Exception {
        private static final long serialVersionUID = 1;

        RefusedException(String message) {
            super(message);
        }
    }

    /** Returns the address as a URI, whose paths have no brackets. */
    private static String target(String address) {
        return "dns:///" + address.replace("[", "%5B").replace("]", "%5D");
    }

    /** Returns a connection to a server. It connects when it is first used. */
    public Conn connect(String address) throws RefusedException {
        boolean mayBeClear = isClearTokenAllowed || Endpoint.isLoopback(address);
        if (token != null && tls == null && !mayBeClear) {
            throw new RefusedException("refusing to send the token to " + address
                    + " without TLS: use TLS, or allow clear-text tokens if a tunnel protects the connection");
        }
        try {
            return build(address, mayBeClear);
        } catch (RuntimeException e) {
            throw new RefusedException(address + ": " + e.getMessage());
        }
    }

    private Conn build(String address, boolean mayBeClear) {
        ChannelCredentials credentials = tls == null ? InsecureChannelCredentials.create() : tls.get();
        ManagedChannelBuilder<?> builder = Grpc.newChannelBuilder(target(address), credentials)
                // Callbacks only pass events to the driver.
                .directExecutor()
                // The session decides when to retry. A connection that has failed is replaced.
                .disableRetry()
                .disableServiceConfigLookUp()
                .keepAliveTime(KEEP_ALIVE_SECONDS, TimeUnit.SECONDS)
                .keepAliveTimeout(KEEP_ALIVE_TIMEOUT_SECONDS, TimeUnit.SECONDS)
                .userAgent(userAgent);
        if (serverName != null) {
            builder.overrideAuthority(serverName);
        }
        // The credentials may be some without TLS.
        return new Conn(address, builder.build(), token == null ? null : token.credentials(mayBeClear));
    }
}
