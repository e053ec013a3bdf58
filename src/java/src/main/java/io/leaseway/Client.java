package io.leaseway;

import io.leaseway.internal.session.Given;
import io.leaseway.internal.session.Lease;
import io.leaseway.internal.session.Pool;
import io.leaseway.internal.session.Request;
import io.leaseway.internal.session.Session;
import io.leaseway.internal.session.Times;
import io.leaseway.internal.session.Usable;
import io.leaseway.internal.session.Usage;
import io.leaseway.internal.session.Wants;
import io.leaseway.internal.transport.Answer;
import io.leaseway.internal.transport.Clock;
import io.leaseway.internal.transport.Conn;
import java.lang.System.Logger.Level;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.PriorityQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BiConsumer;
import java.util.function.Consumer;

/**
 * A client of a Leaseway (or Doorman) node. It keeps the leases of open resources alive, in a daemon thread of its own.
 * All methods may be called by several threads at the same time.
 *
 * <p>Close it when it is no longer needed, so that its leases go to other clients at once.
 */
public final class Client implements AutoCloseable {
    /** The bound of servers. */
    static final int RESOURCES_PER_REQUEST = 1000;

    /** With fewer resources a request for all of them is short. */
    private static final int MIN_STREAMED = 100;

    /** The minimum time between estimates of demand that are due to waiting callers. */
    static final long MIN_ESTIMATE_INTERVAL = 100 * Times.MILLISECOND;

    /**
     * Delays the first request for a resource, because a first caller commonly arrives right after opening.
     */
    private static final long FIRST_REQUEST_DELAY = 5 * Times.MILLISECOND;

    /** The maximum number of resources that a log message names. */
    private static final int MAX_NAMED = 5;

    private static final long FIRST_ID = ThreadLocalRandom.current().nextLong(1L << 32);
    private static final AtomicLong NEXT_ID = new AtomicLong();

    private final String id;
    private final Mode mode;
    private final System.Logger log;
    private final Consumer<LeaseChange> observer;
    private final Executor executor;
    private final Counters counters = new Counters();
    private final Driver driver;
    /** Completed when the driver has ended. */
    private final CompletableFuture<Void> done = new CompletableFuture<>();

    private final ReentrantLock lock = new ReentrantLock();
    private final Clock clock = new Clock();
    private final Session session;
    private final Map<String, ResourceState> opened = new HashMap<>();
    /** No resources can be opened. */
    private boolean isClosing;
    /** Nothing is wanted, only releases are sent. */
    private boolean isLeaving;
    /** When to estimate all demands next, and when that was done last. */
    private long estimateAt = Times.NEVER;

    private long estimated;
    /** Earlier estimates of single resources. An entry counts if it has the time of its resource. */
    private final PriorityQueue<Estimate> scheduled = new PriorityQueue<>(Comparator.comparingLong(Estimate::at));

    private String lastError = "";

    /** Events since the client was created. */
    static final class Counters {
        final AtomicLong requests = new AtomicLong();
        final AtomicLong requestErrors = new AtomicLong();
        final AtomicLong redirects = new AtomicLong();
        final AtomicLong hints = new AtomicLong();
        final AtomicLong leasesEnded = new AtomicLong();
        final AtomicLong leftOut = new AtomicLong();
        final AtomicLong uncharged = new AtomicLong();
    }

    /** A scheduled estimate of the wants of a resource. */
    private record Estimate(long at, ResourceState resource) {}

    /** A change of what may be used of a resource, with the newest lease of a budget, or null. */
    private record Change(ResourceState resource, Usable usable, Lease allowance) {}

    Client(ClientBuilder settings) {
        id = settings.id == null ? uniqueId() : settings.id;
        mode = settings.mode;
        log = settings.log;
        observer = settings.observer;
        executor = settings.executor;
        long seed = settings.seed == null ? ThreadLocalRandom.current().nextLong() : settings.seed;
        session = new Session(settings.addresses(), settings.pace, RESOURCES_PER_REQUEST, seed);
        driver = new Driver(this, settings.dialer(), settings.pace.deadline(), settings.listensToHints);
        driver.start();
    }

    /**
     * Returns a client of the node with a server at endpoint. It connects in the background and keeps trying, so an
     * unreachable server is not an error: see {@link #ready}.
     *
     * @param endpoint HOST:PORT, or https://HOST:PORT for TLS; the default port is 5100
     */
    public static Client connect(String endpoint) {
        return builder(endpoint).connect();
    }

    /**
     * Returns a builder of a client.
     *
     * @param endpoints servers of the node. Any server will do, because one that is not the master redirects, and the
     *     master names its peers; name several for fault tolerance at the start.
     */
    public static ClientBuilder builder(String... endpoints) {
        return new ClientBuilder().endpoints(endpoints);
    }

    /**
     * Returns a builder with the settings that the command leaseway reads from its environment, too:
     *
     * <ul>
     *   <li>LEASEWAY_SERVER: servers of the node, with commas (default 127.0.0.1:5100)
     *   <li>LEASEWAY_TLS: true: TLS, with the CAs of the system
     *   <li>LEASEWAY_TLS_CA: a PEM file with the CAs to trust instead
     *   <li>LEASEWAY_TLS_CERT, LEASEWAY_TLS_KEY: PEM files with the certificate to show and its key; new connections
     *       use renewed files
     *   <li>LEASEWAY_TLS_SERVER_NAME: what the certificates of servers must be for
     *   <li>LEASEWAY_TOKEN_FILE: a file with a bearer token, which is read again when it changes
     *   <li>LEASEWAY_INSECURE: true: the token is sent without TLS to other machines, too
     * </ul>
     */
    public static ClientBuilder fromEnvironment() {
        return Environment.builder(System.getenv());
    }

    /**
     * Returns a unique HOST:PID:NUMBER. Numbers start at random, because processes in containers with the same host
     * name may have the same PID.
     */
    private static String uniqueId() {
        String host = System.getenv("HOSTNAME");
        if (host == null || host.isEmpty()) {
            try {
                host = InetAddress.getLocalHost().getHostName();
            } catch (UnknownHostException e) {
                host = "unknown";
            }
        }
        host = host.substring(0, Math.min(host.length(), 200));
        return host + ":" + ProcessHandle.current().pid() + ":" + (FIRST_ID + NEXT_ID.incrementAndGet());
    }

    /** Returns the id of the client. */
    public String id() {
        return id;
    }

    /**
     * Opens a resource as a rate: permits per second.
     *
     * @param name the name of the resource
     */
    public Rate rate(String name) {
        return rate(name, options -> {});
    }

    /**
     * Opens a resource as a rate: permits per second.
     *
     * @param name the name of the resource
     * @param configure changes the settings of the resource
     * @throws KindException if it is already open as another kind
     * @throws OptionException if it is already open with other settings
     */
    public Rate rate(String name, Consumer<ResourceOptions> configure) {
        return new Rate(open(name, ResourceState.Kind.RATE, configure));
    }

    /**
     * Opens a resource as a gauge: permits in use at the same time.
     *
     * @param name the name of the resource
     */
    public Gauge gauge(String name) {
        return gauge(name, options -> {});
    }

    /**
     * Opens a resource as a gauge: permits in use at the same time.
     *
     * @param name the name of the resource
     * @param configure changes the settings of the resource
     * @throws KindException if it is already open as another kind
     * @throws OptionException if it is already open with other settings
     */
    public Gauge gauge(String name, Consumer<ResourceOptions> configure) {
        return new Gauge(open(name, ResourceState.Kind.GAUGE, configure));
    }

    /**
     * Opens a resource of kind BUDGET: an amount that may be spent in each period.
     *
     * @param name the name of the resource
     * @throws KindException if it is already open as another kind
     */
    public Budget budget(String name) {
        // Nothing may be spent after the expiry.
        return new Budget(open(
                name, ResourceState.Kind.BUDGET, options -> options.wants(0).mode(Mode.PESSIMISTIC)));
    }

    /**
     * Combines limits that an operation needs permits or amounts of, such as
     * {@code client.limits(tokens.of(900), connections.of(), dollars.of(0.25))}.
     *
     * @param costs the permits or the amount of each limit
     */
    public Limits limits(Cost... costs) {
        return new Limits(List.of(costs));
    }

    /**
     * Opens a resource without a limiter. The caller has to respect its capacity, and may report its usage. The wants
     * are fixed.
     *
     * @param name the name of the resource
     * @param wants the capacity to ask for
     */
    public Share share(String name, double wants) {
        return share(name, wants, options -> {});
    }

    /**
     * Opens a resource without a limiter, see {@link #share(String, double)}.
     *
     * @param name the name of the resource
     * @param wants the capacity to ask for
     * @param configure changes the settings of the resource
     * @throws KindException if it is already open as another kind
     * @throws OptionException if it is already open with other settings
     */
    public Share share(String name, double wants, Consumer<ResourceOptions> configure) {
        return new Share(open(name, ResourceState.Kind.SHARE, configure.andThen(options -> options.wants(wants))));
    }

    private ResourceState open(String name, ResourceState.Kind kind, Consumer<ResourceOptions> configure) {
        Checks.id("name of the resource", name);
        var options = new ResourceOptions(mode);
        configure.accept(options);
        while (true) {
            ResourceState known;
            lock.lock();
            try {
                if (isClosing) {
                    throw new ClosedException();
                }
                known = opened.get(name);
                if (known == null) {
                    return openNew(name, kind, options);
                }
                if (known.kind != kind) {
                    throw new KindException(name, known.kind.text, kind.text);
                }
                known.checkOptions(options);
                if (known.retain()) {
                    return known;
                }
            } finally {
                lock.unlock();
            }
            // Its last handle is being closed.
            closeResource(known);
        }
    }

    /** Opens a resource that is not open. The lock must be held. */
    private ResourceState openNew(String name, ResourceState.Kind kind, ResourceOptions options) {
        var resource = new ResourceState(this, name, kind, options, driver::notePressure);
        opened.put(name, resource);
        long now = clock.now();
        want(now, resource);
        if (resource.estimatesWants()) {
            session.postpone(name, now + FIRST_REQUEST_DELAY);
        }
        session.reportAgain(name);
        driver.wake();
        return resource;
    }

    /** Called when the last reference of a resource was dropped. It is idempotent. */
    void closeResource(ResourceState resource) {
        // Until the lease is released the resource stays open, so that nobody else releases it with a report from
        // before the limiter was closed.
        resource.closeLimiter();
        lock.lock();
        try {
            if (opened.remove(resource.id, resource)) {
                release(resource);
            }
        } finally {
            lock.unlock();
        }
        driver.wake();
    }

    /** Releases the lease of a resource whose limiter is closed. The lock must be held. */
    private void release(ResourceState resource) {
        session.release(
                resource.id,
                resource.spender == null ? null : resource.spender.wants().spent());
    }

    void record(String resource, double capacity) {
        if (observer != null) {
            try {
                observer.accept(new LeaseChange(Instant.now(), id, resource, capacity));
            } catch (RuntimeException | Error e) {
                logError("the lease observer has failed", e);
            }
        }
    }

    void logError(String message, Throwable error) {
        try {
            log.log(Level.ERROR, message, error);
        } catch (RuntimeException | Error e) {
            // The logger may be the cause of the error.
        }
    }

    /** Updates the demand for a resource. It is sent at once if it has changed enough. */
    void demandChanged(ResourceState resource) {
        lock.lock();
        try {
            if (opened.get(resource.id) == resource) {
                want(clock.now(), resource);
            }
        } finally {
            lock.unlock();
        }
        driver.wake();
    }

    long start() {
        return clock.start();
    }

    Executor executor() {
        return executor;
    }

    System.Logger log() {
        return log;
    }

    Counters counters() {
        return counters;
    }

    void countUncharged(long permits) {
        counters.uncharged.addAndGet(permits);
    }

    long now() {
        return clock.now();
    }

    /**
     * Releases all leases, and waits until that is done or has failed once; then they expire. Close the permits of gauges
     * first, because the server gives to others what is still in use. A request releases 1,000 leases and takes at most
     * the deadline of a request; one that is in flight is awaited first. Callers that wait at a limiter get a
     * {@link ClosedException}. It is idempotent. If the thread is interrupted, it returns at once, and so it does in the
     * thread of the client, where an executor that runs tasks directly may call it.
     */
    @Override
    public void close() {
        beginClosing();
        if (driver.isCurrentThread()) {
            return;
        }
        try {
            done.get();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        } catch (ExecutionException e) {
            throw new AssertionError(e);
        }
    }

    /** Closes the limiters of all resources, and opens no more. Returns the resources. */
    private List<ResourceState> closeLimiters() {
        List<ResourceState> all;
        lock.lock();
        try {
            isClosing = true;
            all = List.copyOf(opened.values());
            opened.clear();
        } finally {
            lock.unlock();
        }
        all.forEach(ResourceState::closeLimiter);
        return all;
    }

    private void beginClosing() {
        List<ResourceState> all = closeLimiters();
        lock.lock();
        try {
            isLeaving = true;
            all.forEach(this::release);
            session.endBackOff();
        } finally {
            lock.unlock();
        }
        driver.wake();
    }

    /**
     * Waits until every open resource has a lease. A fallback capacity does not count. A resource that is closed
     * meanwhile is not waited for.
     *
     * @param timeout the maximum time to wait
     * @throws NotReadyException if the timeout ends first; it says which resources have no lease, and why
     * @throws ClosedException if the client is closed
     * @throws InterruptedException if the thread is interrupted first
     */
    public void ready(Duration timeout) throws InterruptedException {
        ready(timeout, null);
    }

    void ready(Duration timeout, ResourceState only) throws InterruptedException {
        long begun = System.nanoTime();
        long limit = Nanos.of(timeout);
        List<ResourceState> awaited;
        lock.lock();
        try {
            awaited = opened.values().stream()
                    .filter(resource -> only == null || resource == only)
                    .toList();
            if (isClosing || only != null && awaited.isEmpty()) {
                throw new ClosedException();
            }
        } finally {
            lock.unlock();
        }
        for (ResourceState resource : awaited) {
            ResourceState.Current current = resource.current();
            while (current.usable().basis() != Basis.LEASED && !isClosed(current, only)) {
                long left = limit == Nanos.FOREVER ? limit : limit - (System.nanoTime() - begun);
                try {
                    // Waiting for the end of the client, too, would leave a trace at both futures after each timeout.
                    current.changed().get(Math.max(left, 0), TimeUnit.NANOSECONDS);
                } catch (TimeoutException e) {
                    throw notReady(awaited, e);
                } catch (ExecutionException e) {
                    throw new AssertionError(e);
                }
                current = resource.current();
            }
        }
    }

    /** Returns whether a resource was closed, so that it is not waited for. */
    private boolean isClosed(ResourceState.Current current, ResourceState only) {
        if (!current.isClosed()) {
            return false;
        }
        lock.lock();
        try {
            if (isClosing || only != null) {
                throw new ClosedException();
            }
        } finally {
            lock.unlock();
        }
        return true;
    }

    private NotReadyException notReady(List<ResourceState> awaited, TimeoutException cause) {
        String why;
        lock.lock();
        try {
            why = session.failures() > 0
                    ? lastError
                    : "no request has failed, and " + session.target() + " has not answered yet";
        } finally {
            lock.unlock();
        }
        List<String> names = awaited.stream()
                .filter(resource -> resource.current().usable().basis() != Basis.LEASED)
                .map(resource -> resource.id)
                .sorted()
                .toList();
        return new NotReadyException(names, why, cause);
    }

    /** Returns a snapshot of counters and resources. */
    public Stats stats() {
        List<ResourceState> all;
        long now;
        lock.lock();
        try {
            all = List.copyOf(opened.values());
            now = clock.now();
        } finally {
            lock.unlock();
        }
        return new Stats(
                counters.requests.get(),
                counters.requestErrors.get(),
                counters.redirects.get(),
                counters.hints.get(),
                counters.leasesEnded.get(),
                counters.leftOut.get(),
                counters.uncharged.get(),
                all.stream()
                        .map(resource -> resource.stats(now))
                        .sorted(Comparator.comparing(ResourceStats::name))
                        .toList());
    }

    /** Returns the state of the connection to the servers. */
    public Health health() {
        lock.lock();
        try {
            return new Health(session.target(), session.endpoints(), session.failures(), lastError);
        } finally {
            lock.unlock();
        }
    }

    /** Returns the number of the stream on which leases are renewed at present, or 0. For tests. */
    long renewalStream() {
        lock.lock();
        try {
            return session.stream();
        } finally {
            lock.unlock();
        }
    }

    /** Updates the demand for a resource. The lock must be held. */
    private void want(long now, ResourceState resource) {
        Wants wants = resource.wants(now);
        Lease lease = session.lease(now, resource.id);
        if (lease != null && wants.outstanding() > 0 && wants.outstanding() <= lease.capacity()) {
            wants = new Wants(wants.amount(), wants.priority(), 0, wants.usage());
        }
        boolean isUrgent = session.want(now, resource.id, wants, resource.mode);
        if (wants.outstanding() > 0 || isUrgent && resource.isUnderPressure()) {
            estimateSoon(now);
        }
        long at = resource.nextSampleAt();
        if (at != Times.NEVER) {
            at = Math.max(at, now + MIN_ESTIMATE_INTERVAL);
            if (at < resource.estimateAt) {
                resource.estimateAt = at;
                scheduled.add(new Estimate(at, resource));
            }
        }
    }

    /** Estimates all demands at this time, or a little later. The lock must be held. */
    private void estimateSoon(long at) {
        estimateAt = Math.min(estimateAt, Math.max(at, estimated + MIN_ESTIMATE_INTERVAL));
    }

    /**
     * Returns the resources whose demands to estimate now: all of them if callers wait at some, else those of the next
     * request and those that are scheduled. Others are skipped, because there may be a hundred thousand. The lock must
     * be held.
     */
    private List<ResourceState> dueEstimates(long now) {
        List<ResourceState> due = new ArrayList<>();
        boolean isTimeForAll = estimateAt <= now;
        if (isTimeForAll || session.isDue(now)) {
            List<String> ids = isTimeForAll ? List.of() : session.dueResources(now);
            if (isTimeForAll || ids.size() == opened.size()) {
                // All are estimated. With most clients the next request asks for all resources.
                estimateAt = Times.NEVER;
                estimated = now;
                due.addAll(opened.values());
            } else {
                for (String name : ids) {
                    ResourceState resource = opened.get(name);
                    if (resource != null) {
                        due.add(resource);
                    }
                }
            }
        }
        while (!scheduled.isEmpty() && scheduled.peek().at <= now) {
            Estimate next = scheduled.poll();
            ResourceState resource = next.resource;
            if (resource.estimateAt == next.at && opened.get(resource.id) == resource) {
                resource.estimateAt = Times.NEVER;
                due.add(resource);
            }
        }
        return due;
    }

    /**
     * What the driver has to do now.
     *
     * @param outgoing the request to send, or null
     * @param inFlight the number of the request whose answer still counts, or 0
     * @param delay the time until the next step at the latest
     * @param watchesPressure pressure at a limiter requires a step; it does not if demands will be estimated soon
     *     anyway
     * @param isFinished everything has been released
     */
    record Step(Request outgoing, long inFlight, long delay, boolean watchesPressure, boolean isFinished) {}

    /** Returns what the driver has to do now. */
    Step step() {
        Step step;
        List<Change> changes;
        long suspended;
        lock.lock();
        try {
            long now = clock.update();
            suspended = clock.suspended();
            for (ResourceState resource : dueEstimates(now)) {
                want(now, resource);
            }
            Request outgoing = session.poll(now);
            changes = changes(now);
            long inFlight = session.inFlight();
            long next = Math.min(session.wake(now), estimateAt);
            if (!scheduled.isEmpty()) {
                next = Math.min(next, scheduled.peek().at);
            }
            step = new Step(
                    outgoing,
                    inFlight,
                    Math.max(next - now, 0),
                    estimateAt > now + MIN_ESTIMATE_INTERVAL,
                    // Leases that cannot be released now expire.
                    isLeaving && inFlight == 0 && (session.isIdle() || session.failures() > 0));
        } finally {
            lock.unlock();
        }
        apply(suspended, changes);
        return step;
    }

    /** Reports the outcome of a request to the session. why is null if there was no error. */
    void report(BiConsumer<Session, Long> outcome, String why) {
        List<Change> changes;
        long suspended;
        lock.lock();
        try {
            long now = clock.update();
            suspended = clock.suspended();
            outcome.accept(session, now);
            if (why != null) {
                lastError = why;
            }
            changes = changes(now);
        } finally {
            lock.unlock();
        }
        apply(suspended, changes);
    }

    /** Returns the changes to apply once the lock is released. */
    private List<Change> changes(long now) {
        List<Change> changes = new ArrayList<>();
        session.changes(now, (name, usable) -> {
            ResourceState resource = opened.get(name);
            if (resource != null) {
                Lease allowance = resource.kind == ResourceState.Kind.BUDGET ? session.lease(now, name) : null;
                changes.add(new Change(resource, usable, allowance));
            }
        });
        return changes;
    }

    /** Applies changes. Only the driver calls it, so that changes are applied in order. */
    private void apply(long suspended, List<Change> changes) {
        for (Change change : changes) {
            ResourceState resource = change.resource;
            Usable usable = change.usable;
            Usable before = resource.apply(suspended, usable);
            if (before == null) {
                continue;
            }
            if (change.allowance != null && resource.takeAllowance(suspended, change.allowance)) {
                demandChanged(resource);
            }
            if (usable.capacity() > before.capacity() && resource.isUnderPressure()) {
                // With more capacity, more may be wanted.
                driver.notePressure();
            }
            if (before.basis() == Basis.LEASED && usable.basis() == Basis.FALLBACK) {
                counters.leasesEnded.incrementAndGet();
                log.log(
                        Level.WARNING,
                        "the lease of {0} expired without a refresh; it may use {1}",
                        resource.id,
                        usable.capacity());
            }
        }
    }

    void hinted(List<String> resources, boolean isEverything) {
        counters.hints.incrementAndGet();
        lock.lock();
        try {
            long now = clock.now();
            if (isEverything) {
                session.hintAll(now);
            }
            for (String name : resources) {
                session.hint(now, name);
            }
        } finally {
            lock.unlock();
        }
    }

    /** Schedules an estimate because a caller has to wait at a limiter. */
    void handlePressure() {
        lock.lock();
        try {
            estimateSoon(clock.now());
        } finally {
            lock.unlock();
        }
    }

    /** Learns the peers of a server, if it has any, and whether it accepts streams of renewals. */
    void discovered(String server, Conn.Discovered discovered) {
        lock.lock();
        try {
            if (!discovered.peers().isEmpty()) {
                session.learn(discovered.peers());
            }
            session.offerStream(server, discovered.renewsByStream() ? MIN_STREAMED : 0);
        } finally {
            lock.unlock();
        }
    }

    /** Applies the states of pools, and the priorities at which the server counts this client. */
    void setStates(Answer answer, Map<String, Usage> usage) {
        List<ResourceState> answered = new ArrayList<>();
        long now;
        long suspended;
        lock.lock();
        try {
            now = clock.now();
            suspended = clock.suspended();
            for (Given given : answer.given()) {
                ResourceState resource = opened.get(given.id());
                if (resource != null) {
                    answered.add(resource);
                }
            }
        } finally {
            lock.unlock();
        }
        for (ResourceState resource : answered) {
            Pool pool = answer.pools().get(resource.id);
            resource.setPool(now, suspended, pool, pool == null ? null : usage.get(resource.id));
            Long priority = answer.priorities().get(resource.id);
            if (priority != null
                    && resource.effectivePriority.getAndSet(priority) != priority
                    && priority != resource.priority) {
                log.log(
                        Level.INFO,
                        "the server counts this client at priority {0} for {1}, not at {2}",
                        priority,
                        resource.id,
                        resource.priority);
            }
        }
    }

    /** Describes what may be used while no server answers, for the log. */
    String describeFallback() {
        List<String> described = new ArrayList<>();
        lock.lock();
        try {
            long now = clock.now();
            for (ResourceState resource : opened.values()) {
                if (described.size() == MAX_NAMED) {
                    described.add((opened.size() - MAX_NAMED) + " more resources");
                    break;
                }
                Lease lease = session.lease(now, resource.id);
                if (lease != null) {
                    described.add("\"" + resource.id + "\" may use its lease of " + lease.capacity() + " for another "
                            + TimeUnit.NANOSECONDS.toSeconds(lease.end() - now) + " s, then mode " + resource.mode
                            + " decides");
                    continue;
                }
                Usable usable = session.usable(now, resource.id);
                described.add("\"" + resource.id + "\" may use " + (usable == null ? 0 : usable.capacity()) + " (mode "
                        + resource.mode + ")");
            }
        } finally {
            lock.unlock();
        }
        return described.isEmpty() ? "nothing is wanted" : String.join(", ", described);
    }

    /** Makes an error the last one that health reports. */
    void noteError(String why) {
        lock.lock();
        try {
            lastError = why;
        } finally {
            lock.unlock();
        }
    }

    /**
     * Called by the driver when it has ended. If the client was not closed before, why says why it has ended. Then no
     * lease is renewed any more, and callers must not wait for one.
     */
    void driverEnded(String why) {
        try {
            if (why != null) {
                noteError(why);
                closeLimiters();
            }
        } finally {
            done.complete(null);
        }
    }
}
