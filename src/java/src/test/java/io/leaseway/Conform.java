package io.leaseway;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.stream.Stream;

/** The program with which {@code leaseway-bench conform} drives this library. */
final class Conform {
    private Client client;
    private final Map<String, Resource> opened = new HashMap<>();
    private final Map<String, Deque<Permit>> permits = new HashMap<>();
    /** The last reservation of each budget. */
    private final Map<String, BudgetReservation> reservations = new HashMap<>();
    /** Permits of several limits in use. */
    private Permit taken;

    public static void main(String[] arguments) throws IOException {
        Conform driver = new Conform();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String answer;
            try {
                answer = driver.execute(line.split(" "));
            } catch (Exception error) {
                answer = "error " + error;
            }
            System.out.println(answer);
            System.out.flush();
        }
        System.exit(0);
    }

    private String execute(String[] words) throws Exception {
        String name = words.length > 1 ? words[1] : "";
        switch (words[0]) {
            case "open" ->
                client = Client.fromEnvironment()
                        .endpoints(words[2].split(","))
                        .id(name)
                        .mode(Mode.valueOf(words[3].toUpperCase(Locale.ROOT)))
                        .connect();
            case "rate" -> opened.put(name, client.rate(name, options -> options.wants(number(words))));
            case "gauge" -> opened.put(name, client.gauge(name, options -> options.wants(number(words))));
            case "wants" -> setWants(opened.get(name), number(words));
            case "capacity" -> {
                Resource resource = opened.get(name);
                double capacity = resource.capacity();
                return (Double.isInfinite(capacity) ? "inf" : capacity) + " " + resource.basis();
            }
            case "allow" -> {
                return String.valueOf(allow(name, (long) number(words)));
            }
            case "release" -> permits.get(name).pop().close();
            case "count" -> {
                return String.valueOf(count((Rate) opened.get(name), number(words)));
            }
            case "budget" -> opened.put(name, client.budget(name));
            case "spend" -> {
                return String.valueOf(spend((Budget) opened.get(name), number(words), Double.parseDouble(words[3])));
            }
            case "left" -> {
                return String.valueOf(((Budget) opened.get(name)).left());
            }
            case "reserve" -> {
                Budget budget = (Budget) opened.get(name);
                return String.valueOf(reserve(name, budget, number(words), Double.parseDouble(words[3])));
            }
            case "settle" -> reservations.remove(name).settle(number(words));
            case "period" -> {
                Optional<Budget.Period> period = ((Budget) opened.get(name)).period();
                return period.map(known -> String.valueOf(known.start().getEpochSecond()))
                        .orElse("none");
            }
            // The default of the library.
            case "streams" -> {
                return "100";
            }
            case "all" -> {
                return number(words) == 0 ? tryAll(name) : String.valueOf(waitForAll(name, number(words)));
            }
            case "cancel" -> {
                return String.valueOf(cancelWait(name, number(words)));
            }
            case "return" -> taken.close();
            case "opposite" -> {
                return opposite(name, words[2], words[3], Double.parseDouble(words[4]));
            }
            case "close" -> opened.get(name).close();
            case "exit" -> client.close();
            default -> throw new IllegalArgumentException("unknown command " + words[0]);
        }
        return "ok";
    }

    /** Returns the limits NAME=N,…. */
    private Limits limits(String costs) {
        return client.limits(Stream.of(costs.split(",")).map(this::cost).toArray(Cost[]::new));
    }

    private Cost cost(String text) {
        String[] parts = text.split("=");
        Resource resource = opened.get(parts[0]);
        long n = Long.parseLong(parts[1]);
        if (resource instanceof Rate rate) {
            return rate.of(n);
        }
        return resource instanceof Gauge gauge ? gauge.of(n) : ((Budget) resource).of(n);
    }

    private String tryAll(String costs) {
        try {
            taken = limits(costs).tryAcquire();
            return "true";
        } catch (RefusedException refused) {
            return "refused " + refused.resource();
        }
    }

    private boolean waitForAll(String costs, double seconds) throws InterruptedException {
        try {
            taken = limits(costs).acquire(duration(seconds));
            return true;
        } catch (TimeoutException passed) {
            return false;
        }
    }

    private boolean cancelWait(String costs, double seconds) throws Exception {
        CompletableFuture<Permit> wait = limits(costs).acquireAsync();
        try {
            taken = wait.get((long) (seconds * 1e9), TimeUnit.NANOSECONDS);
            return true;
        } catch (TimeoutException passed) {
            wait.cancel(false);
            return false;
        }
    }

    /** Takes and returns n permits of two limits, in two threads and orders, for a time. Returns how often. */
    private String opposite(String one, String other, String n, double seconds) throws Exception {
        long end = System.nanoTime() + (long) (seconds * 1e9);
        CompletableFuture<Integer> first = takeRepeatedly(one + "=" + n + "," + other + "=" + n, end);
        CompletableFuture<Integer> second = takeRepeatedly(other + "=" + n + "," + one + "=" + n, end);
        return first.get() + " " + second.get();
    }

    private CompletableFuture<Integer> takeRepeatedly(String costs, long end) {
        var result = new CompletableFuture<Integer>();
        Runnable caller = () -> {
            int times = 0;
            try {
                for (long left = end - System.nanoTime(); left > 0; left = end - System.nanoTime()) {
                    Permit permit = limits(costs).acquire(Duration.ofNanos(left));
                    times++;
                    permit.close();
                }
                result.complete(times);
            } catch (TimeoutException passed) {
                result.complete(times);
            } catch (InterruptedException | RuntimeException error) {
                result.completeExceptionally(error);
            }
        };
        new Thread(caller).start();
        return result;
    }

    private static Duration duration(double seconds) {
        return Duration.ofNanos((long) (seconds * 1e9));
    }

    private static double number(String[] words) {
        return Double.parseDouble(words[2]);
    }

    private static void setWants(Resource resource, double wants) {
        if (resource instanceof Rate rate) {
            rate.setWants(wants);
        } else {
            ((Gauge) resource).setWants(wants);
        }
    }

    private static boolean spend(Budget budget, double amount, double seconds) throws InterruptedException {
        if (seconds == 0) {
            return budget.trySpend(amount);
        }
        try {
            budget.spend(amount, Duration.ofNanos((long) (seconds * 1e9)));
            return true;
        } catch (TimeoutException passed) {
            return false;
        }
    }

    private boolean reserve(String name, Budget budget, double amount, double seconds) throws InterruptedException {
        if (seconds == 0) {
            Optional<BudgetReservation> reserved = budget.tryReserve(amount);
            reserved.ifPresent(reservation -> reservations.put(name, reservation));
            return reserved.isPresent();
        }
        try {
            reservations.put(name, budget.reserve(amount, Duration.ofNanos((long) (seconds * 1e9))));
            return true;
        } catch (TimeoutException passed) {
            return false;
        }
    }

    private boolean allow(String name, long n) {
        if (opened.get(name) instanceof Rate rate) {
            return rate.tryAcquire(n);
        }
        Optional<Permit> permit = ((Gauge) opened.get(name)).tryAcquire(n);
        permit.ifPresent(permits.computeIfAbsent(name, key -> new ArrayDeque<>())::push);
        return permit.isPresent();
    }

    private static int count(Rate rate, double seconds) throws InterruptedException {
        long end = System.nanoTime() + (long) (seconds * 1e9);
        for (int count = 0; ; count++) {
            try {
                rate.acquire(1, Duration.ofNanos(Math.max(end - System.nanoTime(), 1)));
            } catch (TimeoutException passed) {
                return count;
            }
        }
    }
}
