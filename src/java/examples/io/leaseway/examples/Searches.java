package io.leaseway.examples;

import io.leaseway.Client;
import io.leaseway.Rate;

/** Searches as fast as the share of this process allows. */
public final class Searches {
    private Searches() {}

    public static void main(String[] arguments) throws InterruptedException {
        try (Client client = Client.connect("127.0.0.1:5100")) {
            Rate searches = client.rate("searches");
            for (int n = 1; n <= 300; n++) {
                searches.acquire();
                System.out.printf("search %d: may do %.1f per second%n", n, searches.limit());
            }
        }
    }
}
