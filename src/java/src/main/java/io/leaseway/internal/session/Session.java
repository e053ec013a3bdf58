package io.leaseway.internal.session;

import static io.leaseway.internal.session.Times.NEVER;
import static io.leaseway.internal.session.Times.SECOND;
import static io.leaseway.internal.session.Times.after;
import static io.leaseway.internal.session.Times.since;

import io.leaseway.Mode;
import io.leaseway.internal.session.RenewalStream.Place;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.SplittableRandom;
import java.util.function.BiConsumer;
import java.util.function.Predicate;
import java.util.stream.Stream;

/** The state machine of one client; see the package documentation. Its owner serializes calls. */
public final class Session {
    /** The due time of a resource whose request is in flight. */
    private static final long NOT_BEFORE_ANSWER = NEVER;

    /** The relative loss of capacity that is confirmed early. */
    private static final double SHRINK_THRESHOLD = 0.005;

    private final Pace pace;
    private final int resourcesPerRequest;
    private final SplittableRandom random;
    private final Route route;
    private final Map<String, Entry> entries = new HashMap<>();
    /**
     * The resources whose usable capacity may differ from what was reported, apart from those whose leases have
     * expired.
     */
    private Set<String> unreported = new HashSet<>();
    /** The earliest due time and the earliest expiry of a live lease. */
    private final CachedMin firstDue = new CachedMin();

    private final CachedMin firstEnd = new CachedMin();
    /** The resources that are no longer wanted and not yet released. */
    private final Map<String, Entry> leaving = new HashMap<>();

    private final RenewalStream stream = new RenewalStream();

    private InFlight inFlight;
    private long number;
    private int failures;
    /** The last request was a release and failed: then resources that are due go before the next release. */
    private boolean hasReleaseFailed;
    /** The end of the back-off. */
    private long pauseUntil;

    private long lastSent;
    private boolean hasSent;

    private enum Kind {
        ASK,
        RELEASE,
        STREAM
    }

    /** The request in flight. ids is sorted. renewed has the resources that a message on a stream renews. */
    private record InFlight(long number, long sent, long deadline, Kind kind, String[] ids, List<String> renewed) {
        boolean concerns(String id) {
            return Arrays.binarySearch(ids, id) >= 0;
        }
    }

    /**
     * Creates a session without resources.
     *
     * @param endpoints the servers of the node, as HOST:PORT; at least one
     * @param pace the timeouts and intervals
     * @param resourcesPerRequest the maximum number of resources in one request; others follow in the next one
     * @param seed the seed of jitter
     */
    public Session(List<String> endpoints, Pace pace, int resourcesPerRequest, long seed) {
        this.pace = pace;
        this.resourcesPerRequest = Math.max(resourcesPerRequest, 1);
        random = new SplittableRandom(seed);
        route = new Route(endpoints, random.nextLong());
    }

    /**
     * Sets the demand for a resource. A new resource is asked for at once, a known one if its demand has changed
     * enough, else with the next refresh. Returns whether it will be asked for early.
     */
    public boolean want(long now, String id, Wants demand, Mode mode) {
        long soon = earliestRequest(now);
        unreported.add(id);
        Entry returning = leaving.remove(id);
        if (returning != null) {
            comeBack(now, soon, id, returning, demand, mode);
        }
        Entry entry = entries.get(id);
        if (entry == null) {
            firstDue.insert(now);
            entries.put(id, new Entry(demand, mode, now));
            return true;
        }
        boolean isUrgent = entry.asked == null || demand.isUrgent(entry.asked);
        if (isUrgent) {
            schedule(entry, soon);
        }
        entry.demand = demand;
        entry.mode = mode;
        return isUrgent;
    }

    /** A resource is wanted again that was not yet released. */
    private void comeBack(long now, long soon, String id, Entry returning, Wants demand, Mode mode) {
        returning.due = Math.max(soon, returning.notBefore);
        // It may have been opened anew, by a handle that does not know of the lease yet.
        returning.reported = null;
        Entry entry = returning;
        // The server may have processed the release. The allowance of a budget belongs to the incarnation that was
        // closed.
        if (returning.isGivenBack || demand.spent() != null) {
            entry = new Entry(demand, mode, now);
            entry.safe = returning.safe;
        }
        firstDue.insert(entry.due);
        if (entry.lease != null) {
            firstEnd.insert(entry.lease.end());
        }
        entries.put(id, entry);
    }

    /** Drops the demand for a resource. Its lease is released. */
    public void release(String id) {
        release(id, null);
    }

    /** Drops the demand for a resource. Its lease is released with the last report of a budget, or null. */
    public void release(String id, BudgetUse last) {
        Entry entry = entries.remove(id);
        if (entry == null) {
            return;
        }
        if (last != null) {
            entry.demand = entry.demand.reporting(last);
        }
        firstDue.remove(entry.due);
        if (entry.lease != null) {
            firstEnd.remove(entry.lease.end());
        }
        if (entry.asked != null) {
            leaving.put(id, entry);
        }
    }

    /** Ends a back-off, so that the next request is sent at once. */
    public void endBackOff() {
        failures = 0;
        pauseUntil = 0;
    }

    /** Reports a hint of the server: asking for this resource now would change its lease. */
    public void hint(long now, String id) {
        Entry entry = entries.get(id);
        if (entry != null) {
            schedule(entry, earliestRequest(now));
        }
    }

    /** Reports a hint for all resources. */
    public void hintAll(long now) {
        long soon = earliestRequest(now);
        for (Entry entry : entries.values()) {
            schedule(entry, soon);
        }
    }

    /** Asks for a resource no earlier than at, not even together with others. */
    public void postpone(String id, long at) {
        Entry entry = entries.get(id);
        if (entry != null) {
            firstDue.remove(entry.due);
            entry.due = Math.max(entry.due, at);
            entry.notBefore = at;
        }
    }

    /** Returns the request to send now, or null. A request whose deadline has passed is abandoned first. */
    public Request poll(long now) {
        InFlight late = inFlight;
        if (late != null && late.deadline <= now) {
            inFlight = null;
            requestFailed(now, late, pace.backoffMax());
        }
        if (inFlight != null || now < pauseUntil) {
            return null;
        }
        // Releases that always fail must not let all other leases expire.
        boolean asksFirst = hasReleaseFailed && firstDueTime() <= now;
        hasReleaseFailed = false;
        List<Release> releases = asksFirst ? List.of() : releases(now);
        if (!releases.isEmpty()) {
            begin(now, Kind.RELEASE, releases.stream().map(Release::id), List.of());
            return outgoing(List.of(), releases, null);
        }
        if (usesStream(now)) {
            return streamRequest(now);
        }
        // On another stream everything has to be stated again.
        stream.giveUp();
        List<Ask> asks = asks(now);
        if (asks.isEmpty()) {
            return null;
        }
        begin(now, Kind.ASK, asks.stream().map(Ask::id), List.of());
        return outgoing(asks, List.of(), null);
    }

    private void begin(long now, Kind kind, Stream<String> ids, List<String> renewed) {
        number++;
        inFlight = new InFlight(number, now, after(now, pace.deadline()), kind, ids.toArray(String[]::new), renewed);
        lastSent = now;
        hasSent = true;
    }

    private Request outgoing(List<Ask> asks, List<Release> releases, StreamRequest message) {
        return new Request(number, route.target(), inFlight.deadline, asks, releases, message);
    }

    /** Returns whether nothing is wanted and everything has been released. */
    public boolean isIdle() {
        return entries.isEmpty() && leaving.isEmpty() && inFlight == null;
    }

    /** Reports the answer of the master to a request. Returns whether the answer still counts. */
    public boolean answered(long now, long request, List<Given> given) {
        InFlight flight = takeInFlight(request);
        if (flight == null) {
            return false;
        }
        failures = 0;
        route.succeeded();
        if (flight.kind == Kind.RELEASE) {
            for (String id : flight.ids) {
                leaving.remove(id);
            }
            return true;
        }
        for (Given lease : given) {
            // Leases that this request did not ask for are ignored.
            if (flight.concerns(lease.id())) {
                storeLease(now, flight.sent, lease);
            }
        }
        for (String id : flight.ids) {
            keepLease(now, id);
        }
        return true;
    }

    /**
     * Schedules the refresh of a resource that was left out of an answer: too soon, or refused. Its lease stays
     * unchanged.
     */
    private void keepLease(long now, String id) {
        Entry entry = entries.get(id);
        if (entry == null || entry.due != NOT_BEFORE_ANSWER) {
            return;
        }
        long wait = Math.max(pace.refreshMin(), Pace.MIN_REQUEST_GAP);
        if (entry.lease != null) {
            wait = pace.refresh(entry.lease.refresh(), since(entry.lease.end(), now), random);
        }
        schedule(entry, after(now, wait));
    }

    /**
     * Reports that the server is not the master, and which server is; master is null if it does not know. Returns
     * whether the answer still counts.
     */
    public boolean redirected(long now, long request, String master) {
        InFlight flight = takeInFlight(request);
        if (flight == null) {
            return false;
        }
        if (master != null && route.redirected(master)) {
            stream.giveUp();
            retryNow(flight, now);
            return true;
        }
        // A node that is up and has no master will elect one soon.
        requestFailed(now, flight, master == null ? pace.masterlessMax() : pace.backoffMax());
        return true;
    }

    /** Reports that a request has failed. Returns whether that still counts. */
    public boolean failed(long now, long request) {
        InFlight flight = takeInFlight(request);
        if (flight == null) {
            return false;
        }
        requestFailed(now, flight, pace.backoffMax());
        return true;
    }

    /** Calls report for each resource whose usable capacity, expiry or fallback differs from what was last reported. */
    public void changes(long now, BiConsumer<String, Usable> report) {
        Set<String> candidates = unreported;
        if (!candidates.isEmpty()) {
            unreported = new HashSet<>();
        }
        for (String id : firstEnd.isAfter(now) ? candidates : entries.keySet()) {
            Entry entry = entries.get(id);
            if (entry == null) {
                continue;
            }
            Usable usable = entry.usable(now);
            if (!usable.equals(entry.reported)) {
                entry.reported = usable;
                report.accept(id, usable);
            }
        }
    }

    /** Reports this resource again with the next changes: it has a new handle. */
    public void reportAgain(String id) {
        Entry entry = entries.get(id);
        if (entry != null) {
            unreported.add(id);
            entry.reported = null;
        }
    }

    /** Returns what may be used of a resource now, or null if it is not wanted. */
    public Usable usable(long now, String id) {
        Entry entry = entries.get(id);
        return entry == null ? null : entry.usable(now);
    }

    /** Returns the live lease of a resource, or null. */
    public Lease lease(long now, String id) {
        Entry entry = entries.get(id);
        return entry == null ? null : entry.liveLease(now);
    }

    /** Learns the peers of the node from its master. They replace the peers learnt before. */
    public void learn(List<String> peers) {
        route.learn(peers);
    }

    /** Returns all endpoints that are tried in turn while none answers. */
    public List<String> endpoints() {
        return List.copyOf(route.endpoints());
    }

    /** Returns the endpoint that requests go to at present. */
    public String target() {
        return route.target();
    }

    /** Returns the number of the request in flight, or 0. */
    public long inFlight() {
        return inFlight == null ? 0 : inFlight.number;
    }

    /** Returns the number of failures since the last answer. */
    public int failures() {
        return failures;
    }

    /** Returns when poll or changes has to be called at the latest; NEVER if that depends on other events. */
    public long wake(long now) {
        long send = NEVER;
        if (inFlight != null) {
            send = inFlight.deadline;
        } else if (!leaving.isEmpty()) {
            send = pauseUntil;
        } else if (!entries.isEmpty()) {
            send = Math.max(firstDueTime(), pauseUntil);
        }
        if (!firstEnd.isAfter(now)) {
            firstEnd.forget();
        }
        long end = firstEnd.get(() -> {
            long first = NEVER;
            for (Entry entry : entries.values()) {
                Lease lease = entry.liveLease(now);
                if (lease != null) {
                    first = Math.min(first, lease.end());
                }
            }
            return first;
        });
        return Math.min(send, end);
    }

    /** Returns whether a request would be sent now, so that demands should be updated. */
    public boolean isDue(long now) {
        return inFlight == null && pauseUntil <= now && (!leaving.isEmpty() || firstDueTime() <= now);
    }

    /** Returns the resources that a request sent now would ask for, in ascending order. */
    public List<String> dueResources(long now) {
        if (firstDueTime() > now) {
            return List.of();
        }
        if (usesStream(now)) {
            return entries.entrySet().stream()
                    .filter(entry -> entry.getValue().joins(now))
                    .map(Map.Entry::getKey)
                    .sorted()
                    .toList();
        }
        long until = after(now, pace.ahead());
        return earliest(entry -> entry.due <= until && entry.notBefore <= now);
    }

    /**
     * Returns the chosen resources in ascending order: at most as many as fit into a request, those first that are due
     * first.
     */
    private List<String> earliest(Predicate<Entry> isChosen) {
        record Due(long due, String id) {}
        List<Due> order = new ArrayList<>();
        entries.forEach((id, entry) -> {
            if (isChosen.test(entry)) {
                order.add(new Due(entry.due, id));
            }
        });
        if (order.size() > resourcesPerRequest) {
            // Those that have waited longest go first.
            order.sort(Comparator.comparingLong(Due::due).thenComparing(Due::id));
        }
        return order.stream().limit(resourcesPerRequest).map(Due::id).sorted().toList();
    }

    private long firstDueTime() {
        return firstDue.get(() -> {
            long first = NEVER;
            for (Entry entry : entries.values()) {
                first = Math.min(first, entry.due);
            }
            return first;
        });
    }

    private void schedule(Entry entry, long at) {
        entry.schedule(at);
        firstDue.insert(entry.due);
    }

    /** Returns the maximum time between two attempts. */
    private long longestRetry() {
        long refresh = NEVER;
        for (Entry entry : entries.values()) {
            if (entry.lease != null) {
                refresh = Math.min(refresh, entry.lease.refresh());
            }
        }
        return pace.longestRetry(
                refresh == NEVER ? Pace.DEFAULT_REFRESH : refresh,
                route.endpoints().size());
    }

    /** Makes all resources of a request due at once. */
    private void retryNow(InFlight flight, long now) {
        for (String id : flight.ids) {
            Entry entry = entries.get(id);
            if (entry != null) {
                schedule(entry, now);
            }
        }
        for (Entry entry : takeRenewed(flight)) {
            schedule(entry, now);
        }
    }

    /** Returns now, or a little later if a request has just been sent. */
    private long earliestRequest(long now) {
        return hasSent ? Math.max(now, after(lastSent, Pace.MIN_REQUEST_GAP)) : now;
    }

    /** Takes the request in flight if it has this number. Answers to earlier requests do not count. */
    private InFlight takeInFlight(long request) {
        InFlight flight = inFlight;
        if (flight == null || flight.number != request) {
            return null;
        }
        inFlight = null;
        return flight;
    }

    private void requestFailed(long now, InFlight flight, long longest) {
        if (failures < Integer.MAX_VALUE) {
            failures++;
        }
        route.failed();
        long pause = pace.backoff(failures, Math.min(longest, longestRetry()), since(now, flight.sent), random);
        pauseUntil = after(now, pause);
        stream.fail(now);
        for (Entry entry : takeRenewed(flight)) {
            entry.hasFailed = true;
            schedule(entry, now);
        }
        if (flight.kind == Kind.RELEASE) {
            // Retried until the leases expire.
            hasReleaseFailed = true;
            return;
        }
        for (String id : flight.ids) {
            Entry entry = entries.get(id);
            if (entry != null) {
                entry.hasFailed = true;
                schedule(entry, now);
                unreported.add(id);
            }
        }
    }

    /** Returns the leases to release. Those that have expired meanwhile are dropped. */
    private List<Release> releases(long now) {
        leaving.values().removeIf(entry -> entry.liveLease(now) == null);
        if (leaving.isEmpty()) {
            return List.of();
        }
        return leaving.keySet().stream()
                .sorted()
                .limit(resourcesPerRequest)
                .map(id -> {
                    Entry entry = leaving.get(id);
                    entry.isGivenBack = true;
                    return new Release(id, entry.lease.token(), entry.demand.spent());
                })
                .toList();
    }

    private List<Ask> asks(long now) {
        List<Ask> asks = new ArrayList<>();
        for (String id : dueResources(now)) {
            asks.add(ask(now, id));
        }
        return asks;
    }

    /** Asks for one resource: it is due again with the answer. */
    private Ask ask(long now, String id) {
        Entry entry = entries.get(id);
        entry.asked = entry.demand;
        firstDue.remove(entry.due);
        entry.due = NOT_BEFORE_ANSWER;
        Lease has = entry.liveLease(now);
        Lease had = has == null && entry.lease != null && entry.lease.token() != 0 ? entry.lease : null;
        entry.namedUntil = has == null ? NEVER : has.end();
        return new Ask(id, entry.demand, has, had);
    }

    /** Returns whether the lease was taken. */
    private boolean storeLease(long now, long sent, Given given) {
        Entry wanted = entries.get(given.id());
        Entry entry = wanted == null ? leaving.get(given.id()) : wanted;
        if (entry == null) {
            return false;
        }
        if (entry.isOfOtherIncarnation()) {
            // It answers an earlier incarnation of this client of a budget, whose allowance is not that of this one.
            scheduleAnswered(entry, wanted != null, earliestRequest(now));
            return false;
        }
        if (entry.namedUntil <= now) {
            // A new master may have counted the named lease as live although its capacity belongs to another client by
            // now. The next request names the lease as expired, so its answer counts whenever it arrives.
            scheduleAnswered(entry, wanted != null, earliestRequest(now));
            return false;
        }
        var lease = new Lease(
                Lease.granted(given.wire().capacity()),
                after(sent, given.length()),
                given.refresh(),
                given.token(),
                given.wire(),
                given.budget());
        Lease live = entry.liveLease(now);
        double before = live == null ? 0 : live.capacity();
        // The next value of the random sequence is drawn in any case, so that a seed gives the same times.
        long next = after(now, pace.refresh(given.refresh(), since(lease.end(), now), random));
        if (lease.capacity() < before * (1 - SHRINK_THRESHOLD) && given.token() != 0) {
            next = after(now, Pace.MIN_REQUEST_GAP);
        }
        // If a hint or a change of demand came while the request was in flight, the due time is set already, and the
        // next request follows at once.
        scheduleAnswered(entry, wanted != null, next);
        if (wanted != null) {
            if (entry.lease != null) {
                firstEnd.remove(entry.lease.end());
            }
            firstEnd.insert(lease.end());
            unreported.add(given.id());
        }
        entry.lease = lease;
        entry.length = given.length();
        if (given.safe() != null) {
            entry.safe = given.safe();
        }
        entry.hasFailed = false;
        return true;
    }

    private void scheduleAnswered(Entry entry, boolean isWanted, long at) {
        entry.schedule(at);
        if (isWanted) {
            firstDue.insert(entry.due);
        }
    }

    // Renewal by a stream, see the package documentation.

    /**
     * Reports whether a server accepts streams of renewals. One is used from a number of resources on; 0 means that it
     * does not.
     */
    public void offerStream(String server, int resources) {
        stream.offer(server, resources);
    }

    /** Returns the number of the stream on which leases are renewed at present, or 0. */
    public long stream() {
        return stream.open() == null ? 0 : stream.open().number;
    }

    /** Returns the resource with this index on the stream, or null. */
    public String streamId(int index) {
        return stream.open() == null ? null : stream.open().id(index);
    }

    private boolean usesStream(long now) {
        return stream.isUsed(now, route.target(), entries.size());
    }

    private Request streamRequest(long now) {
        if (firstDueTime() > now) {
            return null;
        }
        RenewalStream.Open open = stream.openTo(route.target(), entries.size());
        List<Integer> renewed = renewDue(now, open);
        List<StreamRequest.Stated> stated = new ArrayList<>();
        for (String id : earliest(entry -> entry.joins(now) && !entry.isRenewable(open.number, now))) {
            Entry entry = entries.get(id);
            int index = entry.place.index();
            if (entry.place.stream() != open.number) {
                index = open.ids.size();
                open.ids.add(id);
            }
            entry.place = new Place(open.number, index, false);
            stated.add(new StreamRequest.Stated(index, ask(now, id)));
        }
        if (stated.isEmpty() && renewed.isEmpty()) {
            return null;
        }
        begin(
                now,
                Kind.STREAM,
                stated.stream().map(entry -> entry.ask().id()),
                renewed.stream().map(open::id).toList());
        var message = new StreamRequest(open.number, open.next, stated, RenewalStream.ranges(renewed));
        return outgoing(List.of(), List.of(), message);
    }

    /** Makes the renewable resources that are due part of the next request. Returns their indexes in ascending order. */
    private List<Integer> renewDue(long now, RenewalStream.Open open) {
        List<Integer> indexes = new ArrayList<>();
        for (Entry entry : entries.values()) {
            if (indexes.size() == RenewalStream.MAX_RENEWED) {
                break;
            }
            if (!entry.joins(now) || !entry.isRenewable(open.number, now)) {
                continue;
            }
            indexes.add(entry.place.index());
            entry.namedUntil = entry.lease.end();
            entry.renewedBy = number + 1;
            firstDue.remove(entry.due);
            entry.due = NOT_BEFORE_ANSWER;
        }
        indexes.sort(null);
        return indexes;
    }

    /**
     * Reports the answer of the master to a request that was a message on a stream. Returns whether the answer still
     * counts.
     */
    public boolean streamAnswered(long now, long request, StreamReply reply) {
        InFlight flight = takeInFlight(request);
        RenewalStream.Open open = stream.open();
        if (flight == null || flight.kind != Kind.STREAM || open == null) {
            return false;
        }
        route.succeeded();
        if (reply.isRestart()) {
            // A server that does not even accept the first message would be asked again and again.
            stream.fail(now);
            retryNow(flight, now);
            return true;
        }
        failures = 0;
        stream.succeeded();
        for (StreamReply.Grant grant : reply.granted()) {
            String id = open.id(grant.index());
            // Leases that this message did not ask for are ignored.
            if (id != null && (flight.concerns(id) || isRenewed(flight, id))) {
                granted(now, flight.sent, id, grant.given());
            }
        }
        for (int index : reply.leftOut()) {
            String id = open.id(index);
            if (id != null) {
                noteAnswer(id, false);
                keepLease(now, id);
            }
        }
        for (String id : flight.ids) {
            keepLease(now, id);
        }
        extendLeases(now, flight, reply.unix());
        return true;
    }

    private boolean isRenewed(InFlight flight, String id) {
        Entry entry = entries.getOrDefault(id, leaving.get(id));
        return entry != null && entry.renewedBy == flight.number;
    }

    private void granted(long now, long sent, String id, Given given) {
        Lease live = lease(now, id);
        // After a cut, more may be in use than the lease allows. A renewal cannot say so.
        boolean isCut = live != null && Lease.granted(given.wire().capacity()) < live.capacity();
        boolean isTaken = storeLease(now, sent, given.named(id)) && given.token() != 0;
        noteAnswer(id, isTaken && !isCut);
    }

    private void noteAnswer(String id, boolean isKnown) {
        Entry entry = entries.get(id);
        if (entry != null) {
            entry.renewedBy = 0;
            entry.place = new Place(entry.place.stream(), entry.place.index(), isKnown);
        }
    }

    /** Extends the leases that the answer to a message does not list. */
    private void extendLeases(long now, InFlight flight, long unix) {
        long soon = earliestRequest(now);
        for (String id : flight.renewed) {
            Entry entry = entries.get(id);
            if (entry == null || entry.renewedBy != flight.number) {
                continue;
            }
            if (entry.namedUntil <= now) {
                // See storeLease.
                noteAnswer(id, false);
                schedule(entry, soon);
                continue;
            }
            entry.renewedBy = 0;
            firstEnd.remove(entry.lease.end());
            entry.lease = entry.lease.renewed(after(flight.sent, entry.length), unix + entry.length / SECOND);
            firstEnd.insert(entry.lease.end());
            // Its expiry has changed.
            unreported.add(id);
            entry.hasFailed = false;
            long left = since(entry.lease.end(), now);
            schedule(entry, after(now, pace.refresh(entry.lease.refresh(), left, random)));
        }
    }

    /** Returns the resources that a request renews, as far as no answer has mentioned them. It no longer renews them. */
    private List<Entry> takeRenewed(InFlight flight) {
        List<Entry> renewed = new ArrayList<>();
        for (String id : flight.renewed) {
            Entry entry = entries.get(id);
            if (entry != null && entry.renewedBy == flight.number) {
                entry.renewedBy = 0;
                renewed.add(entry);
            }
        }
        return renewed;
    }

    /**
     * Reports that the server, or a proxy before it, does not know streams. The request is sent again by GetCapacity,
     * at once. Returns whether the failure still counts.
     */
    public boolean streamRefused(long now, long request) {
        InFlight flight = takeInFlight(request);
        if (flight == null) {
            return false;
        }
        stream.refused(now);
        retryNow(flight, now);
        return true;
    }
}
