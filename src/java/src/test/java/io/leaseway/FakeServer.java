package io.leaseway;

import io.grpc.Grpc;
import io.grpc.InsecureServerCredentials;
import io.grpc.Server;
import io.grpc.ServerServiceDefinition;
import io.grpc.stub.ServerCalls;
import io.grpc.stub.StreamObserver;
import io.leaseway.internal.transport.Conn;
import io.leaseway.internal.wire.GetCapacityRequest;
import io.leaseway.internal.wire.GetCapacityResponse;
import io.leaseway.internal.wire.Hint;
import io.leaseway.internal.wire.Lease;
import io.leaseway.internal.wire.ReleaseCapacityRequest;
import io.leaseway.internal.wire.ReleaseCapacityResponse;
import io.leaseway.internal.wire.ResourceRequest;
import io.leaseway.internal.wire.ResourceResponse;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;

/** A server that grants a capacity to everybody, and answers as it is told. */
final class FakeServer implements AutoCloseable {
    final String address;
    volatile double capacity;
    volatile long lengthMs = 60_000;
    /** Requests are not answered. */
    volatile boolean isSilent;
    /** The last request for capacity. */
    volatile GetCapacityRequest last;

    final List<String> released = new CopyOnWriteArrayList<>();
    private final Server server;
    private long token;

    FakeServer(double capacity) {
        this.capacity = capacity;
        var service = ServerServiceDefinition.builder("doorman.Capacity")
                .addMethod(Conn.GET_CAPACITY, ServerCalls.asyncUnaryCall(this::getCapacity))
                .addMethod(Conn.RELEASE_CAPACITY, ServerCalls.asyncUnaryCall(this::releaseCapacity))
                .build();
        var push = ServerServiceDefinition.builder("leaseway.push.v1.Push")
                .addMethod(
                        Conn.WATCH,
                        ServerCalls.asyncServerStreamingCall(
                                (request, hints) -> hints.onNext(Hint.getDefaultInstance())))
                .build();
        try {
            server = Grpc.newServerBuilderForPort(0, InsecureServerCredentials.create())
                    .addService(service)
                    .addService(push)
                    .build()
                    .start();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        address = "127.0.0.1:" + server.getPort();
    }

    private synchronized void getCapacity(GetCapacityRequest request, StreamObserver<GetCapacityResponse> observer) {
        if (isSilent) {
            return;
        }
        last = request;
        token++;
        var answer = GetCapacityResponse.newBuilder();
        for (ResourceRequest resource : request.getResourceList()) {
            answer.addResponse(ResourceResponse.newBuilder()
                    .setResourceId(resource.getResourceId())
                    .setGets(Lease.newBuilder()
                            .setExpiryTime(1)
                            .setRefreshInterval(1)
                            .setCapacity(capacity)
                            .setToken(token)
                            .setRemainingMs(lengthMs)));
        }
        observer.onNext(answer.build());
        observer.onCompleted();
    }

    private void releaseCapacity(ReleaseCapacityRequest request, StreamObserver<ReleaseCapacityResponse> observer) {
        released.addAll(request.getResourceIdList());
        observer.onNext(ReleaseCapacityResponse.getDefaultInstance());
        observer.onCompleted();
    }

    @Override
    public void close() {
        server.shutdownNow();
    }
}
