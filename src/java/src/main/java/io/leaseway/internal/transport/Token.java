package io.leaseway.internal.transport;

import io.grpc.CallCredentials;
import io.grpc.Metadata;
import io.grpc.SecurityLevel;
import io.grpc.Status;
import io.leaseway.OptionException;
import java.io.IOException;
import java.lang.System.Logger.Level;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.Executor;
import java.util.concurrent.locks.ReentrantLock;

/** A bearer token, which is added to each request. A token from a file is read again when the file changes. */
public final class Token {
    private static final Metadata.Key<String> AUTHORIZATION =
            Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);

    /** How often a token file is read again, if requests are made: once a second. */
    private static final long RELOAD_INTERVAL = 1_000_000_000;

    private final Path path;
    private final System.Logger log;
    private final ReentrantLock lock = new ReentrantLock();
    private String header;
    private volatile long readAt = System.nanoTime();
    /** The last error was logged already. */
    private boolean hasComplained;

    private Token(String header, Path path, System.Logger log) {
        this.header = header;
        this.path = path;
        this.log = log;
    }

    /** Returns a fixed token. */
    public static Token of(String text) {
        return new Token(bearer("token", text), null, null);
    }

    /** Returns a token in a file. */
    public static Token ofFile(Path path, System.Logger log) {
        try {
            return new Token(read(path), path, log);
        } catch (IOException e) {
            throw new OptionException("token file", "it cannot be read: " + e);
        }
    }

    /** Keeps the token out of logs. */
    @Override
    public String toString() {
        return "Token(…)";
    }

    /** Returns what adds the token to requests. Requests on a connection without TLS fail unless that is allowed. */
    CallCredentials credentials(boolean isClearAllowed) {
        return new CallCredentials() {
            @Override
            public void applyRequestMetadata(RequestInfo request, Executor executor, MetadataApplier applier) {
                if (!isClearAllowed && request.getSecurityLevel() != SecurityLevel.PRIVACY_AND_INTEGRITY) {
                    applier.fail(Status.UNAUTHENTICATED.withDescription("refusing to send the token without TLS"));
                    return;
                }
                var headers = new Metadata();
                headers.put(AUTHORIZATION, authorization());
                applier.apply(headers);
            }
        };
    }

    /** Returns the value of the header. It keeps the last token if the file cannot be read. */
    String authorization() {
        lock.lock();
        try {
            if (path == null || System.nanoTime() - readAt < RELOAD_INTERVAL) {
                return header;
            }
            readAt = System.nanoTime();
            header = read(path);
            hasComplained = false;
        } catch (IOException | OptionException e) {
            if (!hasComplained) {
                hasComplained = true;
                log.log(Level.WARNING, "the previous token stays in use: " + e);
            }
        } finally {
            lock.unlock();
        }
        return header;
    }

    /** Makes the next request read the file again. */
    void expire() {
        readAt = System.nanoTime() - RELOAD_INTERVAL;
    }

    private static String read(Path path) throws IOException {
        // Servers ignore a trailing line break, too.
        return bearer("token in " + path, Files.readString(path).replaceAll("[\r\n]+$", ""));
    }

    private static String bearer(String setting, String token) {
        // Not every proxy can handle other characters.
        if (token.isEmpty() || !token.chars().allMatch(c -> c >= ' ' && c <= '~')) {
            throw new OptionException(setting, "a token is one line of visible ASCII characters");
        }
        return "Bearer " + token;
    }
}
