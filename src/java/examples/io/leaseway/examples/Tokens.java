package io.leaseway.examples;

import io.leaseway.Client;
import io.leaseway.Rate;
import io.leaseway.Reservation;
import java.time.Duration;

/** A budget of tokens per minute, for calls whose cost is known only at their end. */
public final class Tokens {
    private final Rate budget;

    public Tokens(Client client) {
        budget = client.rate("model-tokens", options -> options.window(Duration.ofMinutes(1)));
    }

    /** A call of a model. */
    public interface Model {
        /** Returns the number of tokens used. */
        long call(String prompt) throws InterruptedException;
    }

    public long complete(Model model, String prompt, long atMost) throws InterruptedException {
        Reservation reservation = budget.reserve(atMost);
        long used = 0;
        try {
            used = model.call(prompt);
            return used;
        } finally {
            reservation.settle(used);
        }
    }
}
