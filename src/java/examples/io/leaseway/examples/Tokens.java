package io.leaseway.examples;

import io.leaseway.Client;
import io.leaseway.Rate;
import io.leaseway.Reservation;
import java.time.Duration;

/** Tokens per minute, for calls whose cost is known only at their end. */
public final class Tokens {
    private final Rate tokens;

    public Tokens(Client client) {
        tokens = client.rate("model-tokens", options -> options.window(Duration.ofMinutes(1)));
    }

    /** A call of a model. */
    public interface Model {
        /** Returns the number of tokens used. */
        long call(String prompt) throws InterruptedException;
    }

    /** Calls a model. If it throws an exception, all tokens count as used. */
    public long complete(Model model, String prompt, long atMost) throws InterruptedException {
        try (Reservation reservation = tokens.reserve(atMost)) {
            long used = model.call(prompt);
            reservation.settle(used);
            return used;
        }
    }
}
