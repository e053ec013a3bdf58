package io.leaseway.internal.limiter;

import io.leaseway.ClosedException;
import io.leaseway.internal.session.BudgetLease;
import io.leaseway.internal.session.Lease;
import io.leaseway.internal.session.Wants;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.LongConsumer;
import java.util.function.LongFunction;
import java.util.function.LongSupplier;
import java.util.function.ObjLongConsumer;

/**
 * Spends from the allowance of a budget, first come, first served. It adds a lock and a clock to a book. The lock is
 * never held while a caller waits, and no code of callers runs under it.
 *
 * <p>An amount is spent in an era, see the book. Only in this era it can be taken back.
 */
public final class Spender {
    /** The era of an amount that was refused. */
    public static final long REFUSED = -1;

    private final ReentrantLock lock = new ReentrantLock();
    private final LongSupplier clock;
    private final Runnable onPressure;
    private final Executor executor;
    private final BudgetBook book;
    /** The callers that wait, in order. The allowance does not cover the first. */
    private final Set<Waiter> waiters = new LinkedHashSet<>();
    /** What they wait for, in total. */
    private double waiting;

    private boolean isClosed;

    /** A caller that waits. It is completed with the era in which its amount was spent. */
    private static final class Waiter extends CompletableFuture<Long> {
        final double amount;
        /** The era, once it was served. */
        long era;

        Waiter(double amount) {
            this.amount = amount;
        }
    }

    /**
     * Creates a spender without an allowance. Times count from start, a value of System.nanoTime. It calls onPressure,
     * with its lock held, when a larger allowance is needed. Futures are completed by executor.
     */
    public Spender(long start, Runnable onPressure, Executor executor) {
        this(() -> System.nanoTime() - start, onPressure, executor);
    }

    Spender(LongSupplier clock, Runnable onPressure, Executor executor) {
        this.clock = clock;
        this.onPressure = onPressure;
        this.executor = executor;
        book = new BudgetBook(clock.getAsLong(), newIncarnation());
    }

    private static long newIncarnation() {
        long random = ThreadLocalRandom.current().nextLong();
        return random == 0 ? 1 : random;
    }

    /**
     * Spends an amount if the allowance covers it now and no caller waits. Returns the era in which it was spent, or
     * REFUSED. If the allowance does not cover it, asks for it in the background.
     */
    public long trySpend(double amount) {
        lock.lock();
        try {
            long now = clock.getAsLong();
            long era = spendNow(now, amount);
            if (era == REFUSED && waiters.isEmpty()) {
                ask(now, amount);
            }
            return era;
        } finally {
            lock.unlock();
        }
    }

    /** As trySpend, but asks for nothing. */
    long spendNow(double amount) {
        lock.lock();
        try {
            return spendNow(clock.getAsLong(), amount);
        } finally {
            lock.unlock();
        }
    }

    /** Asks for an amount in the background, as for one that was refused. */
    void ask(double amount) {
        Locked.run(lock, () -> ask(clock.getAsLong(), amount));
    }

    private long spendNow(long now, double amount) {
        if (isClosed || !waiters.isEmpty() || !book.spend(now, amount)) {
            return REFUSED;
        }
        notePressure(now);
        return book.era();
    }

    private void ask(long now, double amount) {
        if (!isClosed) {
            book.refuse(now, amount);
            notePressure(now);
        }
    }

    private void notePressure(long now) {
        if (book.isShort(now)) {
            onPressure.run();
        }
    }

    /**
     * Waits until the allowance covers an amount, and spends it. Returns the era in which it was spent. Nothing is spent
     * if there is an exception.
     */
    public long spend(double amount, long timeout) throws InterruptedException, TimeoutException {
        if (Thread.interrupted()) {
            throw new InterruptedException();
        }
        Waiter waiter = enqueue(amount);
        try {
            return timeout == Limiter.FOREVER ? waiter.get() : waiter.get(timeout, TimeUnit.NANOSECONDS);
        } catch (ExecutionException e) {
            throw new ClosedException();
        } catch (InterruptedException e) {
            withdraw(waiter);
            throw e;
        } catch (TimeoutException e) {
            withdraw(waiter);
            throw new TimeoutException("leaseway: the allowance did not cover the amount before the timeout");
        }
    }

    /**
     * Waits for an amount without blocking. If the future has ended otherwise by then, because it was cancelled, nothing
     * is spent.
     */
    public CompletableFuture<Void> spendAsync(double amount) {
        return spendAsync(amount, era -> null, (unused, era) -> settle(amount, 0, era));
    }

    /**
     * Waits for an amount without blocking. make turns the era into the result. If the future has ended otherwise by
     * then, because it was cancelled, nothing is spent; discard undoes a result that came a moment too late.
     */
    public <T> CompletableFuture<T> spendAsync(double amount, LongFunction<T> make, ObjLongConsumer<T> discard) {
        Waiter waiter;
        try {
            waiter = enqueue(amount);
        } catch (ClosedException e) {
            return CompletableFuture.failedFuture(e);
        }
        var future = new CompletableFuture<T>();
        LongConsumer deliver =
                era -> Futures.complete(future, () -> make.apply(era), late -> discard.accept(late, era));
        if (waiter.isDone()) {
            deliver.accept(waiter.era);
            return future;
        }
        waiter.whenComplete((era, error) -> Futures.execute(executor, () -> {
            if (error == null) {
                deliver.accept(era);
            } else {
                future.completeExceptionally(error);
            }
        }));
        future.whenComplete((result, error) -> leave(waiter));
        return future;
    }

    /** Returns a waiter, which is served already if the allowance covers the amount and no caller waits. */
    private Waiter enqueue(double amount) {
        var waiter = new Waiter(amount);
        lock.lock();
        try {
            if (isClosed) {
                throw new ClosedException();
            }
            long now = clock.getAsLong();
            long era = spendNow(now, amount);
            if (era == REFUSED) {
                waiters.add(waiter);
                waiting += amount;
                noteWaiting(now);
            } else {
                waiter.era = era;
                waiter.complete(era);
            }
            return waiter;
        } finally {
            lock.unlock();
        }
    }

    private void noteWaiting(long now) {
        book.setWaiting(waiting, waiters.isEmpty() ? 0 : waiters.iterator().next().amount);
        notePressure(now);
    }

    /** A caller gives up. It spends nothing, also if it was served at that moment. */
    private void withdraw(Waiter waiter) {
        if (!leave(waiter) && !waiter.isCompletedExceptionally()) {
            settle(waiter.amount, 0, waiter.era);
        }
    }

    /** A caller leaves the queue. Returns false if it was completed before. */
    private boolean leave(Waiter waiter) {
        if (!waiter.cancel(false)) {
            return false;
        }
        lock.lock();
        List<Waiter> served;
        try {
            if (waiters.remove(waiter)) {
                dequeued(waiter);
            }
            served = serve();
        } finally {
            lock.unlock();
        }
        complete(served);
        return true;
    }

    private void dequeued(Waiter waiter) {
        // Rounding errors end with the last caller.
        waiting = waiters.isEmpty() ? 0 : Math.max(waiting - waiter.amount, 0);
    }

    /** Spends for the callers at the head of the queue, as far as the allowance goes, and returns them. */
    private List<Waiter> serve() {
        List<Waiter> served = new ArrayList<>();
        long now = clock.getAsLong();
        for (Iterator<Waiter> queue = waiters.iterator(); queue.hasNext(); ) {
            Waiter next = queue.next();
            if (!book.spend(now, next.amount)) {
                break;
            }
            queue.remove();
            dequeued(next);
            next.era = book.era();
            served.add(next);
        }
        noteWaiting(now);
        return served;
    }

    /** Wakes callers that were served. Called without the lock. */
    private void complete(List<Waiter> served) {
        for (Waiter waiter : served) {
            if (!waiter.complete(waiter.era)) {
                // It has left at that moment.
                settle(waiter.amount, 0, waiter.era);
            }
        }
    }

    /** Of an amount that was spent in advance in an era, a part was used. */
    public void settle(double reserved, double used, long era) {
        List<Waiter> served;
        lock.lock();
        try {
            book.settle(clock.getAsLong(), reserved, used, era);
            served = serve();
        } finally {
            lock.unlock();
        }
        complete(served);
    }

    /** Spends an amount that was used already. What the allowance does not cover is owed. */
    public void charge(double amount) {
        Locked.run(lock, () -> {
            long now = clock.getAsLong();
            book.charge(now, amount);
            notePressure(now);
        });
    }

    /** Takes the newest lease, which ends at end on this clock. Returns whether the client should ask again at once. */
    public boolean take(Lease lease, long end) {
        List<Waiter> served;
        boolean asks;
        lock.lock();
        try {
            if (isClosed) {
                return false;
            }
            asks = book.take(clock.getAsLong(), lease, end, Spender::newIncarnation);
            served = waiters.isEmpty() ? List.of() : serve();
        } finally {
            lock.unlock();
        }
        complete(served);
        return asks;
    }

    /** The lease has ended: nothing can be spent before the next one. */
    public void expire() {
        Locked.run(lock, book::expire);
    }

    /** Returns the demand, with the report of what was spent. */
    public Wants wants() {
        return Locked.get(lock, () -> {
            BudgetBook.Demanded demanded = book.wants(clock.getAsLong());
            return new Wants(demanded.amount(), 0, 0, null, demanded.use());
        });
    }

    /** Returns what was charged and is not covered by an allowance yet. */
    public double owed() {
        return Locked.get(lock, book::owed);
    }

    /** Returns what may be spent now, without asking. */
    public double left() {
        return Locked.get(lock, () -> book.left(clock.getAsLong()));
    }

    /** Returns what was spent in the current period. */
    public double spent() {
        return Locked.get(lock, book::spent);
    }

    /** Returns the current period, or null before the first lease. */
    public BudgetLease period() {
        return Locked.get(lock, book::period);
    }

    public boolean hasWaiting() {
        return Locked.get(lock, () -> !waiters.isEmpty());
    }

    boolean isClosed() {
        return Locked.get(lock, () -> isClosed);
    }

    /** Closes the spender: waiting and new callers get a ClosedException. Nothing can be spent any more. */
    public void close() {
        List<Waiter> refused;
        lock.lock();
        try {
            isClosed = true;
            book.expire();
            refused = List.copyOf(waiters);
            waiters.clear();
            waiting = 0;
            book.setWaiting(0, 0);
        } finally {
            lock.unlock();
        }
        refused.forEach(waiter -> waiter.completeExceptionally(new ClosedException()));
    }
}
