package io.leaseway.internal.transport;

import io.grpc.ClientCall;
import io.grpc.Status;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.StreamObserver;
import io.leaseway.internal.session.StreamRequest;
import io.leaseway.internal.wire.RenewRequest;
import io.leaseway.internal.wire.RenewResponse;
import java.time.Instant;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.BiConsumer;

/** A stream of renewals. One message is in flight at a time. Callbacks run in threads of the connection. */
public final class Renewals {
    private final long number;
    private final ClientCall<RenewRequest, RenewResponse> call;
    private final StreamObserver<RenewRequest> requests;
    /** Gets the answer to the message in flight, or the error. */
    private final AtomicReference<BiConsumer<RenewResponse, Throwable>> waiting = new AtomicReference<>();
    /** Why the stream has ended, or null. */
    private volatile Throwable ended;

    Renewals(long number, ClientCall<RenewRequest, RenewResponse> call) {
        this.number = number;
        this.call = call;
        requests = ClientCalls.asyncBidiStreamingCall(call, new Answers());
    }

    private final class Answers implements StreamObserver<RenewResponse> {
        @Override
        public void onNext(RenewResponse response) {
            finish(response, null);
        }

        @Override
        public void onError(Throwable error) {
            ended = error;
            finish(null, error);
        }

        @Override
        public void onCompleted() {
            onError(Status.UNAVAILABLE
                    .withDescription("the stream of renewals has ended")
                    .asRuntimeException());
        }
    }

    private void finish(RenewResponse response, Throwable error) {
        BiConsumer<RenewResponse, Throwable> done = waiting.getAndSet(null);
        if (done != null) {
            done.accept(response, error);
        }
    }

    /** Returns its number in the session. */
    public long number() {
        return number;
    }

    /** Sends a message. done gets the answer, or the error. */
    public void renew(String client, StreamRequest message, BiConsumer<Answer, Throwable> done) {
        Instant sent = Instant.now();
        waiting.set((response, error) -> Conn.read(response, error, answer -> read(message, answer, sent), done));
        if (ended == null) {
            requests.onNext(Messages.renewRequest(client, message));
        } else {
            finish(null, ended);
        }
    }

    private static Answer read(StreamRequest message, RenewResponse answer, Instant sent) {
        if (answer.getSequence() != message.sequence()) {
            // What it decides is for other leases, or was applied already.
            String why = "message " + message.sequence() + " got the answer to message " + answer.getSequence();
            throw Status.DATA_LOSS.withDescription(why).asRuntimeException();
        }
        return Answer.ofRenewal(answer, sent);
    }

    /** Closes the stream. */
    public void close() {
        call.cancel("no longer used", null);
    }
}
