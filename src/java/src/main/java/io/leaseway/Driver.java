package io.leaseway;

import io.leaseway.Client.Step;
import io.leaseway.internal.session.Ask;
import io.leaseway.internal.session.Request;
import io.leaseway.internal.session.Session;
import io.leaseway.internal.session.StreamRequest;
import io.leaseway.internal.session.Times;
import io.leaseway.internal.session.Usage;
import io.leaseway.internal.transport.Answer;
import io.leaseway.internal.transport.Conn;
import io.leaseway.internal.transport.Dialer;
import io.leaseway.internal.transport.Explain;
import io.leaseway.internal.transport.Hints;
import io.leaseway.internal.transport.Renewals;
import java.lang.System.Logger.Level;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * The thread of a client. It sends the requests of the session when they are due and reports their outcome. Other
 * threads pass it events.
 */
final class Driver implements Runnable {
    /** The longest sleep, after which it notices a suspend of the machine. */
    private static final long MAX_SLEEP = Times.SECOND;

    /** How often a master is asked for its peers. They change rarely, and a late update does no harm. */
    private static final long REDISCOVERY_INTERVAL = 300 * Times.SECOND;

    /** The minimum time between log lines about the answers of servers, which may all have the same fault. */
    private static final long ANSWER_LOG_INTERVAL = 60 * Times.SECOND;

    /** The pause after an error. */
    private static final long ERROR_PAUSE = Times.SECOND;

    private final Client client;
    private final Dialer dialer;
    private final long deadline;
    private final System.Logger log;
    private final Outage outage = new Outage(System::nanoTime);
    /** null if the client does not listen to hints. */
    private final Hints hints;

    private final Thread thread = new Thread(null, this, "leaseway-client", 0, false);
    private final BlockingQueue<Runnable> events = new LinkedBlockingQueue<>();
    private final AtomicBoolean isWoken = new AtomicBoolean();
    private final AtomicBoolean hasPressure = new AtomicBoolean();
    private volatile boolean watchesPressure = true;

    /** The connection of the last request. */
    private Conn conn;

    private Sent sent;
    /** The stream of renewals, or null. */
    private Renewals renewals;
    /** The connection whose server was asked for its peers last, and when. */
    private Conn discovered;

    private long discoveredAt;
    private long leftOutLogged = System.nanoTime() - ANSWER_LOG_INTERVAL;
    private long malformedLogged = leftOutLogged;

    /** The request in flight. */
    private static final class Sent {
        final long number;
        final String server;
        final boolean asks;
        final boolean isStream;
        /** The usage that it reported, by resource. */
        final Map<String, Usage> usage = new HashMap<>();

        Conn.Cancellable call = () -> {};

        Sent(Request outgoing) {
            number = outgoing.number();
            server = outgoing.target();
            asks = outgoing.releases().isEmpty();
            isStream = outgoing.stream() != null;
            for (Ask ask : outgoing.stated()) {
                if (ask.demand().usage() != null) {
                    usage.put(ask.id(), ask.demand().usage());
                }
            }
        }
    }

    Driver(Client client, Dialer dialer, long deadline, boolean listensToHints) {
        this.client = client;
        this.dialer = dialer;
        this.deadline = deadline;
        log = client.log();
        hints = listensToHints ? new Hints(client.id(), events::add, client::hinted) : null;
    }

    void start() {
        thread.setDaemon(true);
        thread.start();
    }

    boolean isCurrentThread() {
        return Thread.currentThread() == thread;
    }

    /** Makes the driver take another step. */
    void wake() {
        if (isWoken.compareAndSet(false, true)) {
            events.add(() -> isWoken.set(false));
        }
    }

    /** A caller has to wait at a limiter. Called with the lock of the limiter held. */
    void notePressure() {
        if (!hasPressure.getAndSet(true) && watchesPressure) {
            wake();
        }
    }

    @Override
    public void run() {
        String why = null;
        try {
            boolean isFinished = false;
            while (!isFinished) {
                isFinished = runSafely();
            }
        } catch (InterruptedException e) {
            why = "the thread of the client was interrupted";
            client.logError(why + ": its leases expire", e);
        } finally {
            end(why);
        }
    }

    /** Takes a step. After an error it pauses, so that it does not run in a circle. */
    private boolean runSafely() throws InterruptedException {
        try {
            return runOnce();
        } catch (RuntimeException | Error e) {
            client.noteError("an error of the client: " + e);
            client.logError("an error of this library: please report it", e);
            TimeUnit.NANOSECONDS.sleep(ERROR_PAUSE);
            return false;
        }
    }

    private boolean runOnce() throws InterruptedException {
        Step step = client.step();
        if (sent != null && sent.number != step.inFlight()) {
            abandon();
        }
        if (step.isFinished()) {
            return true;
        }
        if (step.outgoing() != null) {
            send(step.outgoing());
        }
        watchesPressure = step.watchesPressure();
        if (watchesPressure && hasPressure.getAndSet(false)) {
            client.handlePressure();
            return false;
        }
        long wait = Math.min(step.delay(), MAX_SLEEP);
        if (hints != null) {
            wait = Math.min(wait, hints.poll());
        }
        Runnable event = events.poll(wait, TimeUnit.NANOSECONDS);
        // No more than there are now: a server that sends hints all the time must not keep requests from being sent.
        for (int more = events.size(); event != null; more--) {
            event.run();
            event = more > 0 ? events.poll() : null;
        }
        return false;
    }

    /** Called when the session has ended and no lease is renewed any more; why is null if the client was closed. */
    private void end(String why) {
        try {
            follow(null);
            renewOn(null);
            use(null);
        } finally {
            client.driverEnded(why);
        }
    }

    /** Makes next the connection for requests. */
    private void use(Conn next) {
        Conn before = conn;
        conn = next;
        if (before != null && before != next && (hints == null || hints.following() != before)) {
            before.close();
        }
    }

    /** Makes next the stream of renewals; null if there is none. */
    private void renewOn(Renewals next) {
        if (renewals != null && renewals != next) {
            renewals.close();
        }
        renewals = next;
    }

    /** Follows the hints of the server behind a connection; null stops. */
    private void follow(Conn master) {
        if (hints == null) {
            return;
        }
        Conn before = hints.following();
        if (master == null) {
            hints.stop();
        } else {
            hints.follow(master);
        }
        if (before != null && before != master && before != conn) {
            before.close();
        }
    }

    private void send(Request outgoing) {
        var request = new Sent(outgoing);
        sent = request;
        client.counters().requests.incrementAndGet();
        if (conn == null || !conn.address().equals(outgoing.target())) {
            try {
                use(dialer.connect(outgoing.target()));
            } catch (Dialer.RefusedException e) {
                use(null);
                events.add(() -> finish(request, null, e));
                return;
            }
        }
        if (request.isStream) {
            renew(request, outgoing.stream());
            return;
        }
        if (request.asks) {
            // The session has given the stream up.
            renewOn(null);
        }
        request.call = conn.send(
                client.id(), outgoing, deadline, (answer, error) -> events.add(() -> finish(request, answer, error)));
    }

    /** Sends a message on the stream of renewals, which is opened by the first. */
    private void renew(Sent request, StreamRequest message) {
        if (renewals == null || renewals.number() != message.stream()) {
            renewOn(conn.openRenewals(message.stream()));
        }
        request.call = () -> renewOn(null);
        renewals.renew(client.id(), message, (answer, error) -> events.add(() -> finish(request, answer, error)));
    }

    /** Drops the request in flight, which the session has abandoned. */
    private void abandon() {
        Sent request = sent;
        sent = null;
        request.call.cancel();
        failed(request, request.server + ": no answer within " + TimeUnit.NANOSECONDS.toMillis(deadline) + " ms");
        // The connection may be dead.
        follow(null);
        use(null);
    }

    private void finish(Sent request, Answer answer, Throwable error) {
        if (request != sent) {
            return;
        }
        sent = null;
        if (request.isStream
                && (error != null || answer.isRedirect() || answer.renewed().isRestart())) {
            renewOn(null);
        }
        if (request.isStream && error != null && Conn.refusesStreams(error)) {
            streamRefused(request, Explain.refusedStream(request.server, error));
        } else if (error != null) {
            if (Conn.isBroken(error)) {
                use(null);
            }
            failed(request, Explain.failure(request.server, error));
        } else if (answer.isRedirect()) {
            redirected(request, answer.master());
        } else {
            if (request.asks) {
                follow(conn);
                discover();
            }
            answered(request, answer);
        }
    }

    private void failed(Sent request, String why) {
        client.counters().requestErrors.incrementAndGet();
        log.log(Level.DEBUG, () -> "request failed: " + why);
        warn(request.server, why);
        // The session has already abandoned a late request, and may have sent another.
        client.report((session, now) -> session.failed(now, request.number), why);
    }

    private void streamRefused(Sent request, String why) {
        log.log(Level.DEBUG, () -> why);
        client.report((session, now) -> session.streamRefused(now, request.number), why);
    }

    private void warn(String server, String why) {
        String message = outage.failed(server, why, client::describeFallback);
        if (message != null) {
            log.log(Level.WARNING, () -> message);
        }
    }

    private void redirected(Sent request, String master) {
        client.counters().redirects.incrementAndGet();
        String why = request.server + ": not the master; the master is " + master;
        if (master == null) {
            why = request.server + ": not the master, and knows no master";
            warn(request.server, why);
        }
        client.report((session, now) -> session.redirected(now, request.number, master), why);
    }

    private void answered(Sent request, Answer answer) {
        String message = outage.over(request.server);
        if (message != null) {
            log.log(Level.INFO, () -> message);
        }
        if (answer.leftOut() > 0) {
            client.counters().leftOut.addAndGet(answer.leftOut());
            long now = System.nanoTime();
            if (now - leftOutLogged >= ANSWER_LOG_INTERVAL) {
                leftOutLogged = now;
                log.log(
                        Level.WARNING,
                        () -> "no lease for " + answer.leftOut() + " resources at " + request.server + ": "
                                + Explain.quoted(List.of(answer.why())));
            }
        }
        String why = null;
        if (!answer.malformed().isEmpty()) {
            String malformed = request.server + ": malformed lease for " + Explain.quoted(answer.malformed());
            why = malformed;
            long now = System.nanoTime();
            if (now - malformedLogged >= ANSWER_LOG_INTERVAL) {
                malformedLogged = now;
                log.log(Level.WARNING, () -> malformed);
            }
        }
        var isAccepted = new AtomicBoolean();
        client.report((session, now) -> isAccepted.set(accept(session, now, request, answer)), why);
        if (isAccepted.get() && request.asks) {
            client.setStates(answer, request.usage);
        }
    }

    /** Reports an answer to the session. Returns whether it still counts. */
    private static boolean accept(Session session, long now, Sent request, Answer answer) {
        if (!request.isStream) {
            return session.answered(now, request.number, answer.given());
        }
        boolean isAccepted = session.streamAnswered(now, request.number, answer.renewed());
        if (isAccepted) {
            answer.nameRenewed(session::streamId);
        }
        return isAccepted;
    }

    /**
     * Asks every new master for the peers of its node and whether it accepts streams of renewals, and again now and
     * then.
     */
    private void discover() {
        long now = System.nanoTime();
        if (discovered == conn && now - discoveredAt < REDISCOVERY_INTERVAL) {
            return;
        }
        discovered = conn;
        discoveredAt = now;
        String server = conn.address();
        conn.discover(deadline, answer -> client.discovered(server, answer));
    }
}
