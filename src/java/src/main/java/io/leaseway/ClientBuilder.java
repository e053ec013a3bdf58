package io.leaseway;

import io.grpc.ChannelCredentials;
import io.grpc.TlsChannelCredentials;
import io.leaseway.internal.session.Pace;
import io.leaseway.internal.transport.Dialer;
import io.leaseway.internal.transport.Endpoint;
import io.leaseway.internal.transport.Token;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.Executor;
import java.util.concurrent.ForkJoinPool;
import java.util.function.Consumer;
import java.util.function.Supplier;

/** The settings of a client. See {@link Client#builder}. */
public final class ClientBuilder {
    private List<String> endpoints = List.of();
    String id;
    Mode mode = Mode.SAFE;
    Pace pace = Pace.DEFAULT;
    boolean listensToHints = true;
    System.Logger log = System.getLogger("io.leaseway");
    Executor executor = ForkJoinPool.commonPool();
    Long seed;
    Consumer<LeaseChange> observer;
    private Supplier<ChannelCredentials> tls;
    private String serverName;
    private String token;
    private Path tokenFile;
    private boolean isClearTokenAllowed;

    ClientBuilder() {}

    /**
     * Sets the servers of the node, instead of those of {@link Client#fromEnvironment}.
     *
     * @param servers HOST:PORT or https://HOST:PORT each
     */
    public ClientBuilder endpoints(String... servers) {
        endpoints = List.of(servers);
        return this;
    }

    /**
     * Sets the id of the client (default HOST:PID:NUMBER). Two clients that run at the same time must not share an id:
     * the server would mix up their leases.
     *
     * @param unique the id
     */
    public ClientBuilder id(String unique) {
        id = Checks.id("id of the client", unique);
        return this;
    }

    /**
     * Sets what to use once a lease has expired (default {@link Mode#SAFE}).
     *
     * @param fallback the mode
     */
    public ClientBuilder mode(Mode fallback) {
        mode = Objects.requireNonNull(fallback);
        return this;
    }

    /**
     * Connects over TLS. An endpoint https://HOST:PORT does so as well; without this it trusts the CAs of the system.
     *
     * @param credentials such as {@link TlsChannelCredentials}
     */
    public ClientBuilder tls(ChannelCredentials credentials) {
        Objects.requireNonNull(credentials);
        return tls(() -> credentials);
    }

    /**
     * Connects over TLS, with credentials that are made for each new connection, so that it uses renewed files.
     *
     * @param credentials makes credentials such as {@link TlsChannelCredentials}
     */
    public ClientBuilder tls(Supplier<ChannelCredentials> credentials) {
        tls = Objects.requireNonNull(credentials);
        return this;
    }

    /**
     * Overrides the name verified against server certificates. The default is the host of the endpoint.
     *
     * @param name the name of a host, or an IP address
     */
    public ClientBuilder serverName(String name) {
        serverName = Endpoint.serverName(name);
        return this;
    }

    /**
     * Sends a bearer token with every request. It is only sent over TLS, or to this machine.
     *
     * @param bearer the token
     */
    public ClientBuilder token(String bearer) {
        token = bearer;
        return this;
    }

    /**
     * Sends the bearer token in a file with every request, and reads the file again when it changes.
     *
     * @param file the file
     */
    public ClientBuilder tokenFile(Path file) {
        tokenFile = file;
        return this;
    }

    /** Allows the token to be sent without TLS, if a tunnel protects the connection. */
    public ClientBuilder allowClearToken() {
        isClearTokenAllowed = true;
        return this;
    }

    /**
     * Sets the timeout of requests (default 3 s). Then the next server is tried.
     *
     * @param timeout positive
     */
    public ClientBuilder deadline(Duration timeout) {
        if (timeout.isNegative() || timeout.isZero()) {
            throw new OptionException("deadline", timeout + " is not positive");
        }
        pace = new Pace(
                Nanos.of(timeout),
                pace.refreshMin(),
                pace.backoffFirst(),
                pace.backoffMax(),
                pace.masterlessMax(),
                pace.ahead());
        return this;
    }

    /**
     * Sets the maximum pause between attempts while no server answers (default 15 s). The first pause is 100 ms. Pauses
     * are also bounded such that every endpoint is tried once per refresh interval.
     *
     * @param pause the maximum
     */
    public ClientBuilder backoffMax(Duration pause) {
        pace = new Pace(
                pace.deadline(),
                pace.refreshMin(),
                pace.backoffFirst(),
                Nanos.of(pause),
                pace.masterlessMax(),
                pace.ahead());
        return this;
    }

    /**
     * Sets the minimum refresh interval (default 1 s), whatever the server says.
     *
     * @param interval the minimum
     */
    public ClientBuilder refreshMin(Duration interval) {
        pace = new Pace(
                pace.deadline(),
                Nanos.of(interval),
                pace.backoffFirst(),
                pace.backoffMax(),
                pace.masterlessMax(),
                pace.ahead());
        return this;
    }

    /**
     * Disables push hints. Lease changes then take a refresh interval instead of a round trip.
     */
    public ClientBuilder withoutHints() {
        listensToHints = false;
        return this;
    }

    /**
     * Sets the logger (default that of io.leaseway). The client logs outages once a minute, and leases that have ended.
     *
     * @param logger the logger
     */
    public ClientBuilder logger(System.Logger logger) {
        log = Objects.requireNonNull(logger);
        return this;
    }

    /**
     * Sets the executor that completes futures (default the common pool), so that code of callers does not run in
     * threads of the client. With one that runs tasks directly it does, and must not block there. If the executor
     * throws, the common pool completes the future.
     *
     * @param completer the executor
     */
    public ClientBuilder executor(Executor completer) {
        executor = Objects.requireNonNull(completer);
        return this;
    }

    /**
     * Seeds the jitter, for reproducible tests.
     *
     * @param number the seed
     */
    public ClientBuilder seed(long number) {
        seed = number;
        return this;
    }

    /**
     * Calls observer for each change of leased capacity, for audits: the sum over all clients must not exceed the
     * capacity. A rise is reported before it is applied, and a fall afterwards. It must neither block nor use the
     * client.
     *
     * @param consumer the observer
     */
    public ClientBuilder leaseObserver(Consumer<LeaseChange> consumer) {
        observer = consumer;
        return this;
    }

    /**
     * Returns a client. It connects in the background and keeps trying, so an unreachable server is not an error: see
     * {@link Client#ready}.
     *
     * @throws OptionException if a setting is invalid
     */
    public Client connect() {
        return new Client(this);
    }

    private List<Endpoint> parsed() {
        if (endpoints.isEmpty()) {
            throw new OptionException("endpoints", "there is none");
        }
        return endpoints.stream().map(Endpoint::parse).toList();
    }

    List<String> addresses() {
        return parsed().stream().map(Endpoint::address).toList();
    }

    Dialer dialer() {
        boolean isSecured = Endpoint.useTls(parsed(), tls != null);
        Supplier<ChannelCredentials> credentials = tls;
        if (isSecured && credentials == null) {
            credentials = TlsChannelCredentials::create;
        }
        if (token != null && tokenFile != null) {
            throw new OptionException("token", "it is set as well as a file with a token: set one of them");
        }
        Token bearer = null;
        if (token != null) {
            bearer = Token.of(token);
        } else if (tokenFile != null) {
            bearer = Token.ofFile(tokenFile, log);
        }
        return new Dialer(credentials, serverName, bearer, isClearTokenAllowed, "leaseway-java/" + Version.VERSION);
    }
}
