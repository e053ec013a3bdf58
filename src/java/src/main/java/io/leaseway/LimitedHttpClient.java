package io.leaseway;

import io.leaseway.internal.limiter.Futures;
import java.io.IOException;
import java.net.Authenticator;
import java.net.CookieHandler;
import java.net.ProxySelector;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandler;
import java.net.http.HttpResponse.BodySubscriber;
import java.net.http.HttpResponse.PushPromiseHandler;
import java.net.http.HttpTimeoutException;
import java.net.http.WebSocket;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Executor;
import java.util.concurrent.Flow;
import java.util.concurrent.TimeoutException;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;

/**
 * An HTTP client whose requests wait for a limiter. A gauge's permit is in use until the body of the response was read
 * to its end, or the request has failed. A timeout of a request limits the wait for a permit, too.
 */
public final class LimitedHttpClient extends HttpClient {
    private final HttpClient base;
    private final Limiter limiter;

    /**
     * Creates a client.
     *
     * @param base sends the requests
     * @param limiter what requests wait for
     */
    public LimitedHttpClient(HttpClient base, Limiter limiter) {
        this.base = Objects.requireNonNull(base);
        this.limiter = Objects.requireNonNull(limiter);
    }

    @Override
    public <T> HttpResponse<T> send(HttpRequest request, BodyHandler<T> handler)
            throws IOException, InterruptedException {
        Permit permit = begin(request);
        boolean hasResponse = false;
        try {
            HttpResponse<T> response = base.send(request, limited(handler, permit));
            hasResponse = true;
            return response;
        } finally {
            if (!hasResponse) {
                permit.close();
            }
        }
    }

    private Permit begin(HttpRequest request) throws IOException, InterruptedException {
        if (request.timeout().isEmpty()) {
            return limiter.begin();
        }
        try {
            return limiter.begin(request.timeout().get());
        } catch (TimeoutException e) {
            throw timedOut(e);
        }
    }

    private static HttpTimeoutException timedOut(TimeoutException cause) {
        var timeout = new HttpTimeoutException("leaseway: no permit before the timeout of the request");
        timeout.initCause(cause);
        return timeout;
    }

    @Override
    public <T> CompletableFuture<HttpResponse<T>> sendAsync(HttpRequest request, BodyHandler<T> handler) {
        return sendAsync(request, handler, null);
    }

    @Override
    public <T> CompletableFuture<HttpResponse<T>> sendAsync(
            HttpRequest request, BodyHandler<T> handler, PushPromiseHandler<T> pushes) {
        var future = new CompletableFuture<HttpResponse<T>>();
        CompletableFuture<Permit> permit = limiter.beginAsync();
        request.timeout().ifPresent(timeout -> Futures.expire(permit, Nanos.of(timeout)));
        cancelWith(future, permit);
        permit.whenComplete((held, error) -> {
            if (error != null) {
                future.completeExceptionally(error instanceof TimeoutException timeout ? timedOut(timeout) : error);
                return;
            }
            CompletableFuture<HttpResponse<T>> sent;
            try {
                sent = base.sendAsync(request, limited(handler, held), pushes);
            } catch (RuntimeException e) {
                held.close();
                future.completeExceptionally(e);
                return;
            }
            cancelWith(future, sent);
            sent.whenComplete((response, failure) -> {
                if (failure != null) {
                    held.close();
                    future.completeExceptionally(failure);
                } else {
                    future.complete(response);
                }
            });
        });
        return future;
    }

    /** Cancels a step when the result was cancelled. */
    private static void cancelWith(CompletableFuture<?> result, CompletableFuture<?> step) {
        result.whenComplete((value, error) -> {
            if (error != null) {
                step.cancel(true);
            }
        });
    }

    private static <T> BodyHandler<T> limited(BodyHandler<T> handler, Permit permit) {
        return info -> new LimitedBody<>(handler.apply(info), permit);
    }

    /** A body with whose end an operation ends. */
    private record LimitedBody<T>(BodySubscriber<T> body, Permit permit) implements BodySubscriber<T> {
        @Override
        public CompletionStage<T> getBody() {
            return body.getBody();
        }

        @Override
        public void onSubscribe(Flow.Subscription subscription) {
            body.onSubscribe(new Flow.Subscription() {
                @Override
                public void request(long n) {
                    subscription.request(n);
                }

                @Override
                public void cancel() {
                    permit.close();
                    subscription.cancel();
                }
            });
        }

        @Override
        public void onNext(List<ByteBuffer> buffers) {
            body.onNext(buffers);
        }

        @Override
        public void onError(Throwable error) {
            permit.close();
            body.onError(error);
        }

        @Override
        public void onComplete() {
            permit.close();
            body.onComplete();
        }
    }

    /** Returns a builder of the base: web sockets do not wait for the limiter. */
    @Override
    public WebSocket.Builder newWebSocketBuilder() {
        return base.newWebSocketBuilder();
    }

    @Override
    public Optional<CookieHandler> cookieHandler() {
        return base.cookieHandler();
    }

    @Override
    public Optional<Duration> connectTimeout() {
        return base.connectTimeout();
    }

    @Override
    public Redirect followRedirects() {
        return base.followRedirects();
    }

    @Override
    public Optional<ProxySelector> proxy() {
        return base.proxy();
    }

    @Override
    public SSLContext sslContext() {
        return base.sslContext();
    }

    @Override
    public SSLParameters sslParameters() {
        return base.sslParameters();
    }

    @Override
    public Optional<Authenticator> authenticator() {
        return base.authenticator();
    }

    @Override
    public Version version() {
        return base.version();
    }

    @Override
    public Optional<Executor> executor() {
        return base.executor();
    }
}
