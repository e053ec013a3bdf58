package io.leaseway.internal.limiter;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.leaseway.internal.session.BudgetLease;
import io.leaseway.internal.session.BudgetUse;
import io.leaseway.internal.session.Lease;
import java.util.stream.DoubleStream;
import org.junit.jupiter.api.Test;

/** In virtual time. */
class BudgetBookTest {
    private static final long SECOND = 1_000_000_000;

    /** The end of each lease. */
    private static final long END = 10 * SECOND;

    private final BudgetBook book = new BudgetBook(0, 1);

    static Lease lease(long token, double capacity, long start, boolean startsOver) {
        var budget = new BudgetLease(start, start + 1000, startsOver);
        return new Lease(capacity, END, 2 * SECOND, token, new Lease.Wire(10, 2, capacity), budget);
    }

    private boolean take(long token, double capacity, long start, boolean startsOver) {
        return book.take(0, lease(token, capacity, start, startsOver), END, () -> 2);
    }

    private void take(long token, double capacity, long start) {
        assertFalse(take(token, capacity, start, false));
    }

    private void take(long token, double capacity) {
        take(token, capacity, 1000);
    }

    private void has(double spent, double owed, double left) {
        assertEquals(spent, book.spent(), "spent");
        assertEquals(owed, book.owed(), "owed");
        assertEquals(left, book.left(0), "left");
    }

    @Test
    void anAllowanceIsNeverExceeded() {
        assertFalse(book.spend(0, 1), "no lease yet");
        take(1, 10);
        assertTrue(book.spend(0, 7));
        assertFalse(book.spend(0, 4));
        assertTrue(book.spend(0, 3));
        assertFalse(book.spend(0, 0.0001));
        assertTrue(book.spend(0, 0));
        take(2, 12);
        assertEquals(2, book.left(END - 1));
        assertEquals(0, book.left(END));
        assertFalse(book.spend(END, 1));
        take(3, 5);
        has(10, 0, 0);
        assertFalse(book.spend(0, 1), "it has spent more");
        take(4, 20);
        book.expire();
        assertFalse(book.spend(0, 1));
    }

    @Test
    void anotherPeriodAndAnotherIncarnationBeginWithNothingSpent() {
        take(1, 10);
        assertTrue(book.spend(0, 7));
        take(2, 4, 2000);
        assertEquals(new BudgetUse(0, 2000, 1, 0, 2, false), book.wants(0).use());
        assertFalse(book.spend(0, 5));
        assertTrue(book.spend(0, 3));
        take(2, 4, 2000);
        assertEquals(1, book.left(0), "the same lease changes nothing");
        assertTrue(take(3, 8, 2000, true), "it asks at once");
        assertEquals(new BudgetUse(0, 2000, 2, 0, 0, false), book.wants(0).use());
        assertFalse(book.spend(0, 1));
    }

    @Test
    void anAmountIsTakenBackWhereItWasSpent() {
        take(1, 10);
        assertTrue(book.spend(0, 7));
        long era = book.era();
        book.settle(0, 7, 2, era);
        has(2, 0, 8);
        book.settle(2 * END, 1, 0, era);
        assertEquals(1, book.spent(), "the lease has ended");
        take(2, 4, 2000);
        assertTrue(book.spend(0, 1));
        book.settle(0, 1, 0, era);
        assertEquals(1, book.spent(), "another period");
        long second = book.era();
        assertTrue(take(3, 0, 2000, true));
        take(4, 4, 2000);
        assertTrue(book.spend(0, 1));
        book.settle(0, 1, 0, second);
        assertEquals(1, book.spent(), "another incarnation");
        long third = book.era();
        take(5, 4, 1000);
        take(6, 4, 2000);
        assertTrue(book.spend(0, 1));
        book.settle(0, 1, 0, third);
        assertEquals(1, book.spent(), "the period was changed and changed back");
        book.settle(0, 2, 0, book.era());
        assertEquals(0, book.spent(), "no more than was spent");
    }

    @Test
    void whatIsOwedIsPaidBeforeAnythingIsSpent() {
        book.charge(0, 3);
        BudgetBook.Demanded demanded = book.wants(0);
        assertEquals(3, demanded.amount());
        assertTrue(demanded.use().isShort());
        has(0, 3, 0);
        take(1, 2);
        has(2, 1, 0);
        take(2, 10);
        has(3, 0, 7);
        assertTrue(book.spend(0, 6));
        long era = book.era();
        book.settle(0, 1, 5, era);
        has(10, 3, 0);
        assertFalse(book.spend(0, 0), "even if nothing is spent");
        book.settle(0, 5, 0, era);
        has(8, 0, 2);
        book.charge(END, 1);
        assertEquals(1, book.owed(), "the lease has ended");
        take(3, 4, 2000);
        has(1, 0, 3);
    }

    @Test
    void smallAmountsAddUpExactly() {
        take(1, 1);
        int spent = 0;
        while (book.spend(0, 0.0001)) {
            spent++;
        }
        assertTrue(spent == 9_999 || spent == 10_000, spent + " times");
        assertTrue(book.spent() + book.left(0) <= 1 + Math.ulp(1.0), book.spent() + " and " + book.left(0));
        assertEquals(1e15 - 0.125, BudgetBook.sum(DoubleStream.of(1e15 - 0.25, 0.125)));
        assertEquals(Math.nextUp(1e15), BudgetBook.sum(DoubleStream.of(1e15, Double.MIN_VALUE)), "sums err upwards");
        take(2, 1e15);
        assertTrue(book.spend(0, Double.MIN_VALUE));
        assertTrue(book.left(0) < 1e15);
        for (double invalid : new double[] {-1, Double.NaN, 1e16, Double.POSITIVE_INFINITY}) {
            assertThrows(IllegalArgumentException.class, () -> BudgetBook.check(invalid));
        }
    }

    @Test
    void wantsFollowTheRateAndTheWaitingAndRefusedCallers() {
        book.setWaiting(50, 20);
        BudgetBook.Demanded waiting = book.wants(0);
        assertEquals(50, waiting.amount());
        assertEquals(20, waiting.use().need());
        assertTrue(waiting.use().isShort());
        book.setWaiting(0, 0);
        book.refuse(0, 30);
        book.refuse(SECOND, 5);
        assertEquals(30, book.wants(SECOND).amount());
        assertEquals(30, book.wants(SECOND).use().need());
        take(1, 1e6);
        assertFalse(book.isShort(SECOND), "it is covered");
        assertEquals(0, book.wants(61 * SECOND).use().need(), "after a minute");
        book.refuse(0, 30);
        assertTrue(book.spend(SECOND, 30));
        assertEquals(0, book.wants(SECOND).use().need(), "it was spent");
        for (int second = 62; second < 120; second++) {
            assertTrue(book.spend(0, 100));
            book.wants(second * SECOND);
        }
        assertEquals(400, book.wants(119 * SECOND).amount());
        book.settle(0, 1000, 0, book.era());
        book.wants(120 * SECOND);
        assertTrue(book.wants(120 * SECOND).amount() < 400, "what was taken back is no demand");
    }
}
