package io.leaseway.internal.limiter;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeoutException;
import java.util.function.Consumer;
import java.util.function.Function;

/**
 * Amounts of budgets, and permits of several limiters: a caller takes all of them, or nothing.
 *
 * <p>A caller waits for the amount of one budget at a time, and holds nothing meanwhile. Then it tries the other budgets
 * without waiting. If one refuses, it gives back what it has taken, and waits for that one instead. With the amounts of
 * all budgets reserved it waits for the permits, see {@link JointLimiter}. If that wait fails, it gives the amounts back.
 * So no budget is waited for while anything is held, and no order of the budgets leads to a deadlock.
 *
 * <p>Amounts that are given back are asked for, like those that were refused. Otherwise one allowance would shrink while
 * the caller waits for another.
 */
public final class JointBudgets {
    /** Permits of a limiter, or an amount of a budget; the other one is null. */
    public record Need(Limiter limiter, long permits, Spender spender, double amount) {}

    private final JointLimiter joint;
    private final List<BudgetNeed> budgets;
    /** Those of which more than 0 is needed. */
    private final List<BudgetNeed> needed;

    /** A budget, and what is needed of it. */
    private static final class BudgetNeed {
        final Spender spender;
        /** The indexes of the needs that name it, in ascending order. */
        final List<Integer> indexes = new ArrayList<>();
        /** The sum of these needs. */
        double amount;
        /** What was taken without a reservation in the era in which something was taken last, and not refunded. */
        private double taken;

        private long takenIn;

        BudgetNeed(Spender spender) {
            this.spender = spender;
        }

        double sum(double[] numbers) {
            return BudgetBook.sum(indexes.stream().mapToDouble(i -> numbers[i]));
        }

        void giveBack(long era) {
            spender.settle(amount, 0, era);
        }

        synchronized void use(long era) {
            if (takenIn != era) {
                taken = 0;
                takenIn = era;
            }
            taken += amount;
        }

        synchronized void unuse(long era) {
            if (takenIn == era) {
                taken = Math.max(taken - amount, 0);
            }
        }

        void refund(double refunded) {
            double back;
            long era;
            synchronized (this) {
                back = Math.min(refunded, taken);
                taken -= back;
                era = takenIn;
            }
            spender.settle(back, 0, era);
        }
    }

    public JointBudgets(List<Need> needs) {
        joint = new JointLimiter(needs.stream()
                .map(need -> new JointLimiter.Part(need.limiter, need.permits))
                .toList());
        var found = new LinkedHashMap<Spender, BudgetNeed>();
        for (int i = 0; i < needs.size(); i++) {
            if (needs.get(i).spender != null) {
                found.computeIfAbsent(needs.get(i).spender, BudgetNeed::new)
                        .indexes
                        .add(i);
            }
        }
        double[] amounts = needs.stream().mapToDouble(Need::amount).toArray();
        found.values().forEach(budget -> budget.amount = BudgetBook.check(budget.sum(amounts)));
        budgets = List.copyOf(found.values());
        needed = budgets.stream().filter(budget -> budget.amount > 0).toList();
    }

    /** Amounts of budgets that were reserved. They are spent unless they are settled or given back. */
    public final class Amounts {
        /** The budgets of which an amount was taken, with the era of each. */
        private final Map<BudgetNeed, Long> eras;

        private boolean isUsed;

        private Amounts(Map<BudgetNeed, Long> eras) {
            this.eras = eras;
        }

        /** Settles for what was used, one number for each need. Those of limiters are ignored. */
        public void settle(double[] used) {
            for (BudgetNeed budget : budgets) {
                budget.spender.settle(budget.amount, budget.sum(used), eras.getOrDefault(budget, 0L));
            }
        }

        /** The amounts are used up, without a reservation. They can be refunded. */
        public void use() {
            isUsed = true;
            eras.forEach(BudgetNeed::use);
        }

        private void giveBack() {
            if (isUsed) {
                eras.forEach(BudgetNeed::unuse);
            }
            eras.forEach(BudgetNeed::giveBack);
        }
    }

    /** Amounts that were taken, or why not. The other one is null. */
    public record Attempt(Amounts amounts, Refusal refusal) {}

    /** Takes all amounts and permits if they are available now. */
    public Attempt tryAcquire() {
        var eras = new HashMap<BudgetNeed, Long>();
        var refusals = new ArrayList<Refusal>();
        for (BudgetNeed budget : needed) {
            long era = budget.spender.trySpend(budget.amount);
            if (era != Spender.REFUSED) {
                eras.put(budget, era);
            } else {
                Refusal refusal = budget.spender.isClosed() ? Refusal.closed() : Refusal.notNow(Meter.UNKNOWN);
                refusals.add(refusal.at(budget.indexes.get(0)));
            }
        }
        Refusal refused = joint.tryAcquire(refusals);
        var amounts = new Amounts(eras);
        if (refused == null) {
            return new Attempt(amounts, null);
        }
        amounts.giveBack();
        eras.keySet().forEach(budget -> budget.spender.ask(budget.amount));
        return new Attempt(null, refused);
    }

    /** Waits for all amounts and permits, and takes them. Nothing is taken if there is an exception. */
    public Amounts acquire(long timeout) throws InterruptedException, TimeoutException {
        long begun = System.nanoTime();
        var eras = new HashMap<BudgetNeed, Long>();
        for (BudgetNeed refusing = takeOthers(eras); refusing != null; refusing = takeOthers(eras)) {
            eras.put(refusing, refusing.spender.spend(refusing.amount, left(timeout, begun)));
        }
        var amounts = new Amounts(eras);
        try {
            joint.acquire(left(timeout, begun));
            return amounts;
        } catch (InterruptedException | TimeoutException | RuntimeException e) {
            amounts.giveBack();
            throw e;
        }
    }

    private static long left(long timeout, long begun) {
        return timeout == Limiter.FOREVER ? timeout : Math.max(timeout - (System.nanoTime() - begun), 0);
    }

    /**
     * Takes the amounts of the budgets that are missing, without waiting. If a budget refuses, gives everything back and
     * returns that budget; otherwise returns null.
     */
    private BudgetNeed takeOthers(Map<BudgetNeed, Long> eras) {
        for (BudgetNeed budget : needed) {
            long era = eras.containsKey(budget) ? eras.get(budget) : budget.spender.spendNow(budget.amount);
            if (era != Spender.REFUSED) {
                eras.put(budget, era);
                continue;
            }
            new Amounts(eras).giveBack();
            eras.clear();
            for (BudgetNeed other : needed) {
                if (other != budget) {
                    other.spender.ask(other.amount);
                }
            }
            return budget;
        }
        return null;
    }

    /**
     * Waits for all amounts and permits without blocking. make creates the result, or throws an exception after it has
     * undone the amounts. If the future has ended otherwise by then, because it was cancelled, nothing is taken; discard
     * undoes a result that came too late.
     */
    public <T> CompletableFuture<T> acquireAsync(Function<Amounts, T> make, Consumer<T> discard) {
        var wait = new Wait<>(make, discard);
        wait.future.whenComplete((result, error) -> wait.cancel());
        wait.takeAmounts(new HashMap<>());
        return wait.future;
    }

    /** A caller that waits for one budget after the other, and then for the permits. */
    private final class Wait<T> {
        final CompletableFuture<T> future = new CompletableFuture<>();
        private final Function<Amounts, T> make;
        private final Consumer<T> discard;
        /** What it waits for now. */
        private volatile CompletableFuture<?> stage;

        Wait(Function<Amounts, T> make, Consumer<T> discard) {
            this.make = make;
            this.discard = discard;
        }

        void cancel() {
            CompletableFuture<?> current = stage;
            if (current != null) {
                current.cancel(false);
            }
        }

        /** Begins to wait for the next one, before that can end. */
        private void enter(CompletableFuture<?> next) {
            stage = next;
            if (future.isDone()) {
                // It was cancelled meanwhile.
                cancel();
            }
        }

        void takeAmounts(Map<BudgetNeed, Long> eras) {
            BudgetNeed refusing = takeOthers(eras);
            if (refusing == null) {
                takePermits(new Amounts(eras));
                return;
            }
            CompletableFuture<Long> spent =
                    refusing.spender.spendAsync(refusing.amount, era -> era, (unused, era) -> refusing.giveBack(era));
            enter(spent);
            spent.whenComplete((era, error) -> {
                if (error == null) {
                    eras.put(refusing, era);
                    takeAmounts(eras);
                } else {
                    future.completeExceptionally(error);
                }
            });
        }

        private void takePermits(Amounts amounts) {
            CompletableFuture<Amounts> permits = joint.acquireAsync(() -> amounts, unused -> joint.undo());
            enter(permits);
            permits.whenComplete((taken, error) -> {
                if (error == null) {
                    Futures.complete(future, () -> make.apply(taken), discard);
                } else {
                    amounts.giveBack();
                    future.completeExceptionally(error);
                }
            });
        }
    }

    /** Gives amounts and permits back that were just taken. */
    public void undo(Amounts amounts) {
        joint.undo();
        amounts.giveBack();
    }

    /** Takes back amounts that were used up in the current era, one number for each need. */
    public void refund(double[] amounts) {
        budgets.forEach(budget -> budget.refund(budget.sum(amounts)));
    }

    /** Returns the permits of gauges. */
    public void release() {
        joint.release();
    }

    /** Turns permits of rates that were just taken into promises, by need; null for gauges and budgets. */
    public Promise[] reserve() {
        return joint.reserve();
    }
}
