package io.leaseway.internal.transport;

import com.google.protobuf.Message;
import io.grpc.CallCredentials;
import io.grpc.CallOptions;
import io.grpc.ClientCall;
import io.grpc.ManagedChannel;
import io.grpc.MethodDescriptor;
import io.grpc.MethodDescriptor.MethodType;
import io.grpc.Status;
import io.grpc.protobuf.ProtoUtils;
import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.ClientResponseObserver;
import io.grpc.stub.StreamObserver;
import io.leaseway.internal.session.Request;
import io.leaseway.internal.wire.DiscoveryRequest;
import io.leaseway.internal.wire.DiscoveryResponse;
import io.leaseway.internal.wire.GetCapacityRequest;
import io.leaseway.internal.wire.GetCapacityResponse;
import io.leaseway.internal.wire.Hint;
import io.leaseway.internal.wire.ReleaseCapacityRequest;
import io.leaseway.internal.wire.ReleaseCapacityResponse;
import io.leaseway.internal.wire.RenewRequest;
import io.leaseway.internal.wire.RenewResponse;
import io.leaseway.internal.wire.WatchRequest;
import java.time.Instant;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.BiConsumer;
import java.util.function.Consumer;
import java.util.function.Function;

/** A connection to a server. Callbacks run in threads of the connection. */
public final class Conn {
    private static final String CAPACITY = "doorman.Capacity/";

    public static final MethodDescriptor<GetCapacityRequest, GetCapacityResponse> GET_CAPACITY = method(
            CAPACITY + "GetCapacity",
            MethodType.UNARY,
            GetCapacityRequest.getDefaultInstance(),
            GetCapacityResponse.getDefaultInstance());

    public static final MethodDescriptor<ReleaseCapacityRequest, ReleaseCapacityResponse> RELEASE_CAPACITY = method(
            CAPACITY + "ReleaseCapacity",
            MethodType.UNARY,
            ReleaseCapacityRequest.getDefaultInstance(),
            ReleaseCapacityResponse.getDefaultInstance());

    public static final MethodDescriptor<DiscoveryRequest, DiscoveryResponse> DISCOVERY = method(
            CAPACITY + "Discovery",
            MethodType.UNARY,
            DiscoveryRequest.getDefaultInstance(),
            DiscoveryResponse.getDefaultInstance());

    public static final MethodDescriptor<WatchRequest, Hint> WATCH = method(
            "leaseway.push.v1.Push/Watch",
            MethodType.SERVER_STREAMING,
            WatchRequest.getDefaultInstance(),
            Hint.getDefaultInstance());

    public static final MethodDescriptor<RenewRequest, RenewResponse> RENEW = method(
            "leaseway.session.v1.Session/Renew",
            MethodType.BIDI_STREAMING,
            RenewRequest.getDefaultInstance(),
            RenewResponse.getDefaultInstance());

    private final String address;
    private final ManagedChannel channel;
    private final CallOptions options;

    Conn(String address, ManagedChannel channel, CallCredentials credentials) {
        this.address = address;
        this.channel = channel;
        options = credentials == null ? CallOptions.DEFAULT : CallOptions.DEFAULT.withCallCredentials(credentials);
    }

    private static <Q extends Message, R extends Message> MethodDescriptor<Q, R> method(
            String name, MethodType type, Q request, R response) {
        return MethodDescriptor.<Q, R>newBuilder()
                .setFullMethodName(name)
                .setType(type)
                .setRequestMarshaller(ProtoUtils.marshaller(request))
                .setResponseMarshaller(ProtoUtils.marshaller(response))
                .build();
    }

    /** Returns the server, as HOST:PORT. */
    public String address() {
        return address;
    }

    /** Closes the connection. Calls in flight fail. */
    public void close() {
        channel.shutdownNow();
    }

    /** A call that can be cancelled. */
    public interface Cancellable {
        void cancel();
    }

    /** Sends a request of a session, other than a message on a stream of renewals. done gets the answer, or the error. */
    public Cancellable send(String client, Request outgoing, long deadline, BiConsumer<Answer, Throwable> done) {
        if (!outgoing.releases().isEmpty()) {
            return unary(
                    RELEASE_CAPACITY,
                    Messages.releaseRequest(client, outgoing.releases()),
                    deadline,
                    Answer::ofRelease,
                    done);
        }
        Instant sent = Instant.now();
        int asked = outgoing.asks().size();
        return unary(
                GET_CAPACITY,
                Messages.askRequest(client, outgoing.asks()),
                deadline,
                response -> Answer.of(asked, response, sent),
                done);
    }

    /** Opens a stream of renewals, which is this one in the session. */
    public Renewals openRenewals(long number) {
        return new Renewals(number, channel.newCall(RENEW, options));
    }

    /**
     * What a server says about its node.
     *
     * @param peers the servers of the node; none if it has a single one, or speaks only the original protocol
     * @param renewsByStream this server accepts streams of renewals
     */
    public record Discovered(List<String> peers, boolean renewsByStream) {}

    /** Asks for the servers of the node, and whether this one accepts streams of renewals. */
    public void discover(long deadline, Consumer<Discovered> done) {
        unary(
                DISCOVERY,
                DiscoveryRequest.getDefaultInstance(),
                deadline,
                response -> new Discovered(Messages.peers(response.getEndpointList()), response.getRenewsByStream()),
                (discovered, error) -> {
                    if (error == null) {
                        done.accept(discovered);
                    }
                });
    }

    /** Reads a response, unless there is an error. done gets the result, or the error. */
    static <R, T> void read(R response, Throwable error, Function<R, T> reader, BiConsumer<T, Throwable> done) {
        T read = null;
        Throwable failure = error;
        try {
            read = error == null ? reader.apply(response) : null;
        } catch (RuntimeException e) {
            failure = e;
        }
        done.accept(read, failure);
    }

    private <Q, R, T> Cancellable unary(
            MethodDescriptor<Q, R> method,
            Q request,
            long deadline,
            Function<R, T> reader,
            BiConsumer<T, Throwable> done) {
        ClientCall<Q, R> call = channel.newCall(method, options.withDeadlineAfter(deadline, TimeUnit.NANOSECONDS));
        ClientCalls.asyncUnaryCall(call, request, new StreamObserver<R>() {
            private R answer;

            @Override
            public void onNext(R response) {
                answer = response;
            }

            @Override
            public void onError(Throwable error) {
                done.accept(null, error);
            }

            @Override
            public void onCompleted() {
                read(answer, null, reader, done);
            }
        });
        return () -> call.cancel("abandoned", null);
    }

    /** A stream of hints. */
    interface Watch extends Cancellable {
        /** Receives the next hint. At most one is underway, so that a server cannot fill the memory. */
        void next();
    }

    /** Opens the stream of hints for a client, and receives the first. */
    Watch watch(String client, Consumer<Hint> onHint, Consumer<Status> onEnd) {
        ClientCall<WatchRequest, Hint> call = channel.newCall(WATCH, options);
        var request = WatchRequest.newBuilder().setClientId(client).build();
        ClientCalls.asyncServerStreamingCall(call, request, new ClientResponseObserver<WatchRequest, Hint>() {
            @Override
            public void beforeStart(ClientCallStreamObserver<WatchRequest> stream) {
                stream.disableAutoRequestWithInitial(1);
            }

            @Override
            public void onNext(Hint hint) {
                onHint.accept(hint);
            }

            @Override
            public void onError(Throwable error) {
                onEnd.accept(Status.fromThrowable(error));
            }

            @Override
            public void onCompleted() {
                onEnd.accept(Status.OK);
            }
        });
        return new Watch() {
            @Override
            public void next() {
                call.request(1);
            }

            @Override
            public void cancel() {
                call.cancel("no longer followed", null);
            }
        };
    }

    /**
     * Returns whether an error says that a server, or a proxy before it, does not take streams of renewals from this
     * client. Others may as well mean that the connection broke.
     */
    public static boolean refusesStreams(Throwable error) {
        return switch (Status.fromThrowable(error).getCode()) {
            case UNIMPLEMENTED, ABORTED, RESOURCE_EXHAUSTED -> true;
            default -> false;
        };
    }

    /** Returns whether a failed request means that its connection should not be used again. */
    public static boolean isBroken(Throwable error) {
        return switch (Status.fromThrowable(error).getCode()) {
            case UNAVAILABLE, DEADLINE_EXCEEDED, CANCELLED, INTERNAL, UNKNOWN -> true;
            default -> false;
        };
    }
}
