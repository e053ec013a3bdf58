package io.leaseway;

import io.grpc.Grpc;
import io.grpc.InsecureServerCredentials;
import io.grpc.Server;
import io.grpc.ServerServiceDefinition;
import io.grpc.Status;
import io.grpc.stub.ServerCalls;
import io.grpc.stub.StreamObserver;
import io.leaseway.internal.transport.Conn;
import io.leaseway.internal.wire.BudgetLease;
import io.leaseway.internal.wire.DiscoveryRequest;
import io.leaseway.internal.wire.DiscoveryResponse;
import io.leaseway.internal.wire.GetCapacityRequest;
import io.leaseway.internal.wire.GetCapacityResponse;
import io.leaseway.internal.wire.Hint;
import io.leaseway.internal.wire.Lease;
import io.leaseway.internal.wire.ReleaseCapacityRequest;
import io.leaseway.internal.wire.ReleaseCapacityResponse;
import io.leaseway.internal.wire.RenewRequest;
import io.leaseway.internal.wire.RenewResponse;
import io.leaseway.internal.wire.ResourceRequest;
import io.leaseway.internal.wire.ResourceResponse;
import io.leaseway.internal.wire.Spent;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CopyOnWriteArraySet;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Function;

/** A server that grants a capacity to everybody, and answers as it is told. */
final class FakeServer implements AutoCloseable {
    final String address;
    volatile double capacity;
    volatile long lengthMs = 60_000;
    volatile long refreshSeconds = 1;
    /** Requests are not answered. */
    volatile boolean isSilent;
    /** The last request for capacity. */
    volatile GetCapacityRequest last;

    final AtomicInteger asked = new AtomicInteger();
    /** It says that it accepts streams of renewals. */
    volatile boolean offersStreams;
    /** Answers messages of streams. If it is null, a proxy does not pass streams. */
    volatile Function<RenewRequest, RenewResponse> renewals;

    final List<String> released = new CopyOnWriteArrayList<>();
    /** The last reports of released budgets. */
    final List<Spent> reported = new CopyOnWriteArrayList<>();
    /** The resources that are budgets. Their period lasts from 3600 to 7200. */
    final Set<String> budgets = new CopyOnWriteArraySet<>();

    private final Server server;
    private long token;

    FakeServer(double capacity) {
        this.capacity = capacity;
        var service = ServerServiceDefinition.builder("doorman.Capacity")
                .addMethod(Conn.GET_CAPACITY, ServerCalls.asyncUnaryCall(this::getCapacity))
                .addMethod(Conn.RELEASE_CAPACITY, ServerCalls.asyncUnaryCall(this::releaseCapacity))
                .addMethod(Conn.DISCOVERY, ServerCalls.asyncUnaryCall(this::discovery))
                .build();
        var sessions = ServerServiceDefinition.builder("leaseway.session.v1.Session")
                .addMethod(Conn.RENEW, ServerCalls.asyncBidiStreamingCall(this::renew))
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
                    .addService(sessions)
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
        asked.incrementAndGet();
        token++;
        var answer = GetCapacityResponse.newBuilder();
        for (ResourceRequest resource : request.getResourceList()) {
            var response = ResourceResponse.newBuilder()
                    .setResourceId(resource.getResourceId())
                    .setGets(lease(capacity, token));
            if (budgets.contains(resource.getResourceId())) {
                response.setBudget(BudgetLease.newBuilder().setPeriodStart(3600).setPeriodEnd(7200));
            }
            answer.addResponse(response);
        }
        observer.onNext(answer.build());
        observer.onCompleted();
    }

    Lease lease(double granted, long name) {
        return Lease.newBuilder()
                .setExpiryTime(1)
                .setRefreshInterval(refreshSeconds)
                .setCapacity(granted)
                .setToken(name)
                .setRemainingMs(lengthMs)
                .build();
    }

    private void discovery(DiscoveryRequest request, StreamObserver<DiscoveryResponse> observer) {
        observer.onNext(DiscoveryResponse.newBuilder()
                .setIsMaster(true)
                .setRenewsByStream(offersStreams)
                .build());
        observer.onCompleted();
    }

    private StreamObserver<RenewRequest> renew(StreamObserver<RenewResponse> observer) {
        if (renewals == null) {
            observer.onError(Status.UNIMPLEMENTED.asRuntimeException());
        }
        return new StreamObserver<>() {
            @Override
            public void onNext(RenewRequest request) {
                if (renewals != null) {
                    observer.onNext(renewals.apply(request));
                }
            }

            @Override
            public void onError(Throwable error) {}

            @Override
            public void onCompleted() {
                observer.onCompleted();
            }
        };
    }

    private void releaseCapacity(ReleaseCapacityRequest request, StreamObserver<ReleaseCapacityResponse> observer) {
        reported.addAll(request.getSpentList());
        released.addAll(request.getResourceIdList());
        observer.onNext(ReleaseCapacityResponse.getDefaultInstance());
        observer.onCompleted();
    }

    @Override
    public void close() {
        server.shutdownNow();
    }
}
