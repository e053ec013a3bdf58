package io.leaseway.internal.transport;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.leaseway.OptionException;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

class EndpointTest {
    @Test
    void endpointsAreNormalised() {
        Map<String, String> endpoints = Map.of(
                "localhost", "localhost:5100",
                " a.example:80 ", "a.example:80",
                "https://a_b/", "a_b:5100",
                "HTTP://a:5101", "a:5101",
                "::1", "[::1]:5100",
                "[::1]:7", "[::1]:7",
                "[fe80::1]", "[fe80::1]:5100",
                "127.0.0.1:05100", "127.0.0.1:5100");
        endpoints.forEach(
                (text, address) -> assertEquals(address, Endpoint.parse(text).address()));
        assertEquals(Endpoint.Scheme.TLS, Endpoint.parse("https://a").scheme());
    }

    @Test
    void errorsSayWhatIsExpected() {
        Map<String, String> errors = Map.of(
                "", "missing host",
                "ftp://a", "unknown scheme",
                "a:b:c", "several colons",
                "1:2:3", "several colons",
                "[::1", "closing bracket",
                "[a]:1", "not an IPv6 address",
                "a:0", "not a number from 1 to 65535",
                "a:99999", "not a number from 1 to 65535",
                "a/b", "unexpected path",
                "a b", "invalid character");
        errors.forEach((text, says) -> {
            var exception = assertThrows(OptionException.class, () -> Endpoint.parse(text));
            assertTrue(exception.getMessage().contains(says), exception.getMessage());
        });
    }

    @Test
    void eitherAllServersUseTlsOrNone() {
        Endpoint plain = Endpoint.parse("http://a");
        Endpoint secured = Endpoint.parse("https://b");
        Endpoint open = Endpoint.parse("c");
        assertTrue(Endpoint.useTls(List.of(open, secured), false));
        assertTrue(Endpoint.useTls(List.of(open), true));
        assertFalse(Endpoint.useTls(List.of(open, plain), false));
        assertThrows(OptionException.class, () -> Endpoint.useTls(List.of(plain, secured), false));
        assertThrows(OptionException.class, () -> Endpoint.useTls(List.of(plain), true));
        assertTrue(Endpoint.isLoopback("127.0.0.1:1") && Endpoint.isLoopback("[::1]:1"));
        assertFalse(Endpoint.isLoopback("127.0.0.1.example:1"));
    }
}
