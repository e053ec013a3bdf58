package io.leaseway.internal.session;

import static io.leaseway.internal.session.SessionTest.given;
import static io.leaseway.internal.session.Times.MILLISECOND;
import static io.leaseway.internal.session.Times.SECOND;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.leaseway.Mode;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.PriorityQueue;
import java.util.SplittableRandom;
import java.util.function.LongConsumer;
import java.util.function.LongPredicate;
import org.junit.jupiter.api.Test;

/** Clients of a master over a network that loses, repeats, delays and reorders messages, in virtual time. */
class NetworkTest {
    private static final double CAPACITY = 100;

    /** A lease that a master has given and not yet seen superseded. */
    private record Grant(long token, double capacity, long end) {}

    /**
     * The smallest master that keeps the rules of the protocol: a client holds the largest of its grants until a later
     * one is confirmed, and gets no more than the others leave.
     */
    private static final class Master {
        private final Map<String, List<Grant>> grants = new HashMap<>();
        private final Map<String, OpenStream> streams = new HashMap<>();
        private long next;
        private int renewed;

        private double held(long now, String client) {
            return grants.get(client).stream()
                    .filter(grant -> now < grant.end)
                    .mapToDouble(Grant::capacity)
                    .max()
                    .orElse(0);
        }

        private void drop(String client, LongPredicate isDropped) {
            grants.computeIfAbsent(client, name -> new ArrayList<>()).removeIf(grant -> isDropped.test(grant.token));
        }

        List<Given> answer(long now, String client, Request outgoing) {
            for (Release release : outgoing.releases()) {
                drop(client, token -> token <= release.token());
            }
            List<Given> answer = new ArrayList<>();
            for (Ask ask : outgoing.asks()) {
                drop(client, token -> ask.has() != null && token < ask.has().token());
                answer.add(grant(now, client, ask));
            }
            return answer;
        }

        /** Returns the capacity that a client may have. */
        private double share(long now, String client, Ask ask) {
            double free = CAPACITY;
            for (String other : grants.keySet()) {
                free -= other.equals(client) ? 0 : held(now, other);
            }
            return Math.max(Math.min(Math.min(ask.demand().amount(), free), CAPACITY * 0.6), 0);
        }

        private Given grant(long now, String client, Ask ask) {
            double capacity = share(now, client, ask);
            next++;
            grants.get(client).add(new Grant(next, capacity, now + 20 * SECOND));
            return given(ask.id(), capacity, next, 20 * SECOND, 2 * SECOND, null);
        }

        /** Answers a message on a stream. Returns null for one that is not the next of the stream. */
        StreamReply renew(long now, String client, StreamRequest message) {
            OpenStream open = streams.get(client);
            if (message.sequence() == 1 && (open == null || open.number < message.stream())) {
                open = new OpenStream(message.stream());
                streams.put(client, open);
            }
            if (open == null || open.number != message.stream() || open.next != message.sequence()) {
                return null;
            }
            open.next++;
            List<StreamReply.Grant> granted = new ArrayList<>();
            for (StreamRequest.Stated stated : message.stated()) {
                Ask ask = stated.ask();
                drop(client, token -> ask.has() != null && token < ask.has().token());
                open.stated.put(stated.index(), ask);
                granted.add(open.granted(stated.index(), grant(now, client, ask)));
            }
            for (StreamRequest.Range range : message.renewed()) {
                for (int index = range.first(); index < range.first() + range.count(); index++) {
                    long named = open.tokens.get(index);
                    drop(client, token -> token < named);
                    if (!extend(now, client, named, share(now, client, open.stated.get(index)))) {
                        granted.add(open.granted(index, grant(now, client, open.stated.get(index))));
                    }
                }
            }
            return new StreamReply(0, granted, List.of(), false);
        }

        /** Renews a lease in place if it is what its client would get. */
        private boolean extend(long now, String client, long token, double capacity) {
            List<Grant> held = grants.get(client);
            boolean isSame = held.removeIf(grant -> grant.token == token && grant.capacity == capacity);
            if (isSame) {
                renewed++;
                held.add(new Grant(token, capacity, now + 20 * SECOND));
            }
            return isSame;
        }
    }

    /** A stream of renewals, as the master knows it. */
    private static final class OpenStream {
        private final long number;
        private long next = 1;
        /** The requests that were stated, and the tokens of the leases that were given for them, by index. */
        private final Map<Integer, Ask> stated = new HashMap<>();

        private final Map<Integer, Long> tokens = new HashMap<>();

        OpenStream(long number) {
            this.number = number;
        }

        private StreamReply.Grant granted(int index, Given lease) {
            tokens.put(index, lease.token());
            return new StreamReply.Grant(index, lease);
        }
    }

    private record Delivery(long at, LongConsumer deliver) {}

    private static final class Run {
        private static final int[] COPIES = {0, 1, 1, 1, 1, 1, 1, 1, 1, 2};
        private final SplittableRandom random;
        private final Master master = new Master();
        private final Map<String, Session> sessions = new HashMap<>();
        private final PriorityQueue<Delivery> network = new PriorityQueue<>(Comparator.comparingLong(Delivery::at));

        Run(int seed) {
            random = new SplittableRandom(seed);
            for (String name : List.of("a", "b", "c")) {
                var session = new Session(List.of("m:1"), Pace.DEFAULT, 9, random.nextLong());
                session.offerStream("m:1", seed % 2);
                sessions.put(name, session);
            }
        }

        private void send(long now, LongConsumer deliver) {
            for (int copies = COPIES[random.nextInt(10)]; copies > 0; copies--) {
                long delay = (long) (-Math.log(1 - random.nextDouble()) * 300 * MILLISECOND);
                if (random.nextInt(20) == 0) {
                    delay += random.nextLong(25 * SECOND);
                }
                network.add(new Delivery(now + delay, deliver));
            }
        }

        /** Returns what the clients may use together. */
        private double step(long now) {
            while (!network.isEmpty() && network.peek().at <= now) {
                network.poll().deliver.accept(now);
            }
            double sum = 0;
            for (Map.Entry<String, Session> entry : sessions.entrySet()) {
                Session session = entry.getValue();
                switch (random.nextInt(400)) {
                    case 0 -> session.release("r");
                    case 1, 2 -> session.want(now, "r", new Wants(random.nextDouble() * CAPACITY), Mode.SAFE);
                    case 3 -> session.hint(now, "r");
                    default -> {}
                }
                Request outgoing = session.poll(now);
                if (outgoing != null && outgoing.stream() != null) {
                    send(now, arrived -> {
                        StreamReply reply = master.renew(arrived, entry.getKey(), outgoing.stream());
                        if (reply != null) {
                            send(arrived, back -> session.streamAnswered(back, outgoing.number(), reply));
                        }
                    });
                } else if (outgoing != null) {
                    send(now, arrived -> {
                        List<Given> answer = master.answer(arrived, entry.getKey(), outgoing);
                        send(arrived, back -> session.answered(back, outgoing.number(), answer));
                    });
                }
                Usable usable = session.usable(now, "r");
                sum += usable == null ? 0 : usable.capacity();
            }
            return sum;
        }
    }

    @Test
    void clientsNeverExceedTheCapacity() {
        double used = 0;
        int renewed = 0;
        for (int seed = 0; seed < 60; seed++) {
            var run = new Run(seed);
            for (long now = 0; now < 300 * SECOND; now += 20 * MILLISECOND) {
                double sum = run.step(now);
                assertTrue(sum <= CAPACITY + 1e-9, "seed " + seed + ": clients use " + sum);
                used += sum;
            }
            renewed += run.master.renewed;
        }
        assertTrue(renewed > 500, renewed + " leases were renewed by streams");
        double part = used / 60 / 15_000 / CAPACITY;
        assertTrue(part > 0.3, "only " + part + " of the capacity was used");
    }
}
