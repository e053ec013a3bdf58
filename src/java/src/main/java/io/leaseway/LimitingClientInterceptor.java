package io.leaseway;

import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.ClientInterceptor;
import io.grpc.ClientStreamTracer;
import io.grpc.Context;
import io.grpc.Contexts;
import io.grpc.Deadline;
import io.grpc.ForwardingClientCall;
import io.grpc.ForwardingClientCallListener.SimpleForwardingClientCallListener;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import io.leaseway.internal.limiter.Futures;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.ReentrantLock;

/**
 * A gRPC interceptor whose calls wait for a limiter, without blocking. The deadlines and the cancellation of the call and
 * of its context end the wait. A gauge's permit is in use until the call has ended.
 */
public final class LimitingClientInterceptor implements ClientInterceptor {
    private final Limiter limiter;

    /**
     * Creates an interceptor.
     *
     * @param limiter what calls wait for
     */
    public LimitingClientInterceptor(Limiter limiter) {
        this.limiter = Objects.requireNonNull(limiter);
    }

    @Override
    public <Q, R> ClientCall<Q, R> interceptCall(MethodDescriptor<Q, R> method, CallOptions options, Channel next) {
        if (method.getType().serverSendsOneMessage()) {
            return new LimitedCall<>(next.newCall(method, options), options, null);
        }
        // The end of a stream whose reader has gone away is noticed by its tracer alone.
        var tracer = new EndTracer();
        CallOptions traced = options.withStreamTracerFactory(tracer);
        return new LimitedCall<>(next.newCall(method, traced), options, tracer);
    }

    /** Closes the permit of a stream when the stream has ended. */
    private static final class EndTracer extends ClientStreamTracer.Factory {
        private volatile Permit permit;

        @Override
        public ClientStreamTracer newClientStreamTracer(ClientStreamTracer.StreamInfo info, Metadata headers) {
            return new ClientStreamTracer() {
                @Override
                public void streamClosed(Status status) {
                    permit.close();
                }
            };
        }
    }

    /** A call that keeps what is done to it until there is a permit. */
    private final class LimitedCall<Q, R> extends ForwardingClientCall<Q, R> {
        private final ClientCall<Q, R> call;
        private final CallOptions options;
        /** null for calls with one answer. */
        private final EndTracer tracer;

        private final ReentrantLock lock = new ReentrantLock();
        /** What was done to the call, until it is admitted; null from then on. */
        private List<Runnable> kept = new ArrayList<>();
        /** The call became ready before it was admitted. */
        private boolean hasMissedReady;

        private CompletableFuture<Permit> permit;

        LimitedCall(ClientCall<Q, R> call, CallOptions options, EndTracer tracer) {
            this.call = call;
            this.options = options;
            this.tracer = tracer;
        }

        @Override
        protected ClientCall<Q, R> delegate() {
            return call;
        }

        @Override
        public void start(Listener<R> listener, Metadata headers) {
            Context context = Context.current();
            permit = limiter.beginAsync();
            Deadline deadline = earlier(options.getDeadline(), context.getDeadline());
            if (deadline != null) {
                Futures.expire(permit, Math.max(deadline.timeRemaining(TimeUnit.NANOSECONDS), 0));
            }
            Context.CancellationListener cancel = cancelled -> permit.cancel(false);
            context.addListener(cancel, Runnable::run);
            permit.whenComplete((held, error) -> {
                context.removeListener(cancel);
                if (error == null) {
                    if (tracer != null) {
                        tracer.permit = held;
                    }
                    context.run(() -> begin(listener, headers, held));
                    return;
                }
                Status status = context.isCancelled() ? Contexts.statusFromCancelled(context) : status(error);
                execute(context.wrap(() -> listener.onClose(status, new Metadata())));
            });
        }

        private static Deadline earlier(Deadline one, Deadline other) {
            if (one == null || other == null) {
                return one == null ? other : one;
            }
            return one.minimum(other);
        }

        /** Runs a task by the executor of the call, because a blocking caller waits for it. */
        private void execute(Runnable task) {
            if (options.getExecutor() == null) {
                task.run();
            } else {
                options.getExecutor().execute(task);
            }
        }

        private void begin(Listener<R> listener, Metadata headers, Permit held) {
            var limited = new LimitedListener(listener, held);
            boolean hasStarted = false;
            try {
                call.start(limited, headers);
                hasStarted = true;
                if (admit()) {
                    execute(limited::onReady);
                }
            } catch (RuntimeException | Error e) {
                held.close();
                call.cancel("the call could not be started", e);
                if (!hasStarted) {
                    execute(() -> limited.onClose(Status.fromThrowable(e), new Metadata()));
                }
            }
        }

        /**
         * Does to the call what was kept, in order. More may be kept meanwhile. Returns whether the listener has to be
         * told that the call is ready.
         */
        private boolean admit() {
            while (true) {
                List<Runnable> actions;
                lock.lock();
                try {
                    actions = kept;
                    if (actions.isEmpty()) {
                        kept = null;
                        return hasMissedReady;
                    }
                    kept = new ArrayList<>();
                } finally {
                    lock.unlock();
                }
                actions.forEach(Runnable::run);
            }
        }

        /** Returns whether the listener can be told that the call is ready. If not, it is told when it is admitted. */
        private boolean noteReady() {
            lock.lock();
            try {
                hasMissedReady |= kept != null;
                return kept == null;
            } finally {
                lock.unlock();
            }
        }

        private void perform(Runnable action) {
            lock.lock();
            try {
                if (kept != null) {
                    kept.add(action);
                    return;
                }
            } finally {
                lock.unlock();
            }
            action.run();
        }

        @Override
        public boolean isReady() {
            lock.lock();
            try {
                if (kept != null) {
                    return false;
                }
            } finally {
                lock.unlock();
            }
            return call.isReady();
        }

        @Override
        public void request(int messages) {
            perform(() -> call.request(messages));
        }

        @Override
        public void sendMessage(Q message) {
            perform(() -> call.sendMessage(message));
        }

        @Override
        public void halfClose() {
            perform(call::halfClose);
        }

        @Override
        public void setMessageCompression(boolean isEnabled) {
            perform(() -> call.setMessageCompression(isEnabled));
        }

        @Override
        public void cancel(String message, Throwable cause) {
            if (permit == null || !permit.cancel(false)) {
                perform(() -> call.cancel(message, cause));
            }
        }

        /** Closes the permit when the call has ended. */
        private final class LimitedListener extends SimpleForwardingClientCallListener<R> {
            private final Permit held;
            /** Calls of a listener must not overlap. */
            private final ReentrantLock turn = new ReentrantLock();

            private boolean isClosed;

            LimitedListener(Listener<R> listener, Permit held) {
                super(listener);
                this.held = held;
            }

            private void takeTurn(Runnable callback) {
                turn.lock();
                try {
                    if (!isClosed) {
                        callback.run();
                    }
                } finally {
                    turn.unlock();
                }
            }

            @Override
            public void onHeaders(Metadata headers) {
                takeTurn(() -> super.onHeaders(headers));
            }

            @Override
            public void onMessage(R message) {
                takeTurn(() -> super.onMessage(message));
            }

            @Override
            public void onReady() {
                // The call is not ready for its user before it was admitted.
                if (noteReady()) {
                    takeTurn(super::onReady);
                }
            }

            @Override
            public void onClose(Status status, Metadata trailers) {
                held.close();
                takeTurn(() -> {
                    isClosed = true;
                    super.onClose(status, trailers);
                });
            }
        }
    }

    /** Turns an error of a limiter into a gRPC status, as callers of gRPC expect. */
    private static Status status(Throwable error) {
        if (error instanceof TimeoutException) {
            return Status.DEADLINE_EXCEEDED.withDescription("leaseway: no permit before the deadline");
        }
        if (error instanceof CancellationException) {
            return Status.CANCELLED.withDescription("leaseway: cancelled while waiting for a permit");
        }
        return Status.UNAVAILABLE.withDescription(error.getMessage()).withCause(error);
    }
}
