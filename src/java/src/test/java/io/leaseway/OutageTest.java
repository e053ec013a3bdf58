package io.leaseway;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;

import org.junit.jupiter.api.Test;

class OutageTest {
    private static final long SECOND = 1_000_000_000;

    @Test
    void anOutageIsLoggedAfterThreeFailuresOnceAMinuteAndAtItsEnd() {
        long[] now = {0};
        var outage = new Outage(() -> now[0]);
        assertNull(outage.failed("a:1", "a:1: down", () -> "x"));
        assertNull(outage.over("a:1"), "nothing was logged");
        assertNull(outage.failed("a:1", "a:1: down", () -> "x"));
        assertNull(outage.failed("b:1", "b:1: down", () -> "x"));
        now[0] = 2 * SECOND;
        assertEquals(
                "no server has answered the last 3 requests: a:1: gone; b:1: down; meanwhile x",
                outage.failed("a:1", "a:1: gone", () -> "x"));
        now[0] = 61 * SECOND;
        assertNull(outage.failed("a:1", "a:1: gone", () -> "x"));
        now[0] = 62 * SECOND;
        assertNotNull(outage.failed("a:1", "a:1: gone", () -> "x"));
        assertEquals("a:1 has answered, after 5 failed requests in 62.0 s", outage.over("a:1"));
        assertNull(outage.failed("a:1", "a:1: down", () -> "x"));
    }
}
