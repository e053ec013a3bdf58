package io.leaseway;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;

/** Combines limiters. */
public final class Limits {
    private Limits() {}

    /**
     * Returns a limiter whose operations need a permit of each of these limiters. Gauges come first, because their
     * permits can be held while others are waited for, and rates last, because their permits should be used at once.
     * Within both kinds the order is that of the names, so that two callers never wait for each other. If one of them
     * fails, permits that were taken before are returned.
     *
     * @param limiters the limiters
     */
    public static Limiter all(Limiter... limiters) {
        var ordered = new ArrayList<>(List.of(limiters));
        ordered.sort(Comparator.comparingInt(Limits::rank).thenComparing(Limits::name));
        return new All(ordered);
    }

    private static int rank(Limiter limiter) {
        return limiter instanceof Gauge ? 0 : limiter instanceof Rate ? 2 : 1;
    }

    private static String name(Limiter limiter) {
        return limiter instanceof Resource resource ? resource.name() : "";
    }

    /** What was taken of each limiter so far. */
    private static final class Taken implements Permit {
        private final List<Permit> permits = new ArrayList<>();
        private final List<Reservation> reservations = new ArrayList<>();
        private final AtomicBoolean isClosed = new AtomicBoolean();

        /** The permits of rates count as used from here on. */
        Permit commit() {
            reservations.forEach(reservation -> reservation.settle(1));
            return this;
        }

        void undo() {
            reservations.forEach(Reservation::cancel);
            close();
        }

        @Override
        public void close() {
            if (isClosed.compareAndSet(false, true)) {
                for (int i = permits.size() - 1; i >= 0; i--) {
                    permits.get(i).close();
                }
            }
        }
    }

    private record All(List<Limiter> limiters) implements Limiter {
        @Override
        public Permit begin() throws InterruptedException {
            try {
                return begin(Nanos.FOREVER);
            } catch (TimeoutException e) {
                throw new AssertionError(e);
            }
        }

        @Override
        public Permit begin(Duration timeout) throws InterruptedException, TimeoutException {
            return begin(Nanos.of(timeout));
        }

        private Permit begin(long timeout) throws InterruptedException, TimeoutException {
            long begun = System.nanoTime();
            var taken = new Taken();
            boolean isComplete = false;
            try {
                for (Limiter limiter : limiters) {
                    long left = timeout == Nanos.FOREVER ? timeout : timeout - (System.nanoTime() - begun);
                    Duration duration = Duration.ofNanos(Math.max(left, 0));
                    if (limiter instanceof Rate rate) {
                        taken.reservations.add(rate.reserve(1, duration));
                    } else {
                        taken.permits.add(limiter.begin(duration));
                    }
                }
                isComplete = true;
            } finally {
                if (!isComplete) {
                    taken.undo();
                }
            }
            return taken.commit();
        }

        @Override
        public CompletableFuture<Permit> beginAsync() {
            var future = new CompletableFuture<Permit>();
            next(0, new Taken(), future);
            return future;
        }

        /** Takes a permit of each limiter from index on, one after the other. */
        private void next(int index, Taken taken, CompletableFuture<Permit> future) {
            if (index == limiters.size()) {
                if (!future.complete(taken)) {
                    taken.undo();
                    return;
                }
                taken.commit();
                return;
            }
            Limiter limiter = limiters.get(index);
            CompletableFuture<?> step = limiter instanceof Rate rate ? rate.reserveAsync(1) : limiter.beginAsync();
            step.whenComplete((result, error) -> {
                if (error != null) {
                    taken.undo();
                    future.completeExceptionally(error);
                    return;
                }
                if (result instanceof Reservation reservation) {
                    taken.reservations.add(reservation);
                } else {
                    taken.permits.add((Permit) result);
                }
                next(index + 1, taken, future);
            });
            future.whenComplete((permit, error) -> {
                if (error != null) {
                    step.cancel(false);
                }
            });
        }
    }
}
