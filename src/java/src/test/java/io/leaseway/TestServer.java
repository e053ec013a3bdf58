package io.leaseway;

import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.BooleanSupplier;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** A running {@code leaseway serve}. */
final class TestServer implements AutoCloseable {
    private static final Pattern SERVING_ON = Pattern.compile("gRPC on (\\S+?),");

    final String address;
    private final Process process;
    private final Path directory;

    private TestServer(String address, Process process, Path directory) {
        this.address = address;
        this.process = process;
        this.directory = directory;
    }

    /** Returns the server binary that LEASEWAY_BIN names. */
    static String binary() {
        String binary = System.getenv("LEASEWAY_BIN");
        assertTrue(binary != null && Files.isExecutable(Path.of(binary)), "LEASEWAY_BIN is no executable: " + binary);
        return binary;
    }

    /** A template of a resource without learning mode. */
    record Template(String glob, double capacity, int lease, int refresh, String safe) {
        Template(String glob, double capacity, int lease, int refresh) {
            this(glob, capacity, lease, refresh, null);
        }

        @Override
        public String toString() {
            return """
                - identifier_glob: "%s"
                  capacity: %s
                %s  algorithm:
                    kind: FAIR_SHARE
                    lease_length: %d
                    refresh_interval: %d
                    learning_mode_duration: 0
                """.formatted(glob, capacity, safe == null ? "" : "  safe_capacity: " + safe + "\n", lease, refresh);
        }
    }

    static TestServer serve(List<Template> templates, String... flags) {
        var text = new StringBuilder("resources:\n");
        templates.forEach(text::append);
        text.append(new Template("*", 100, 60, 1));
        return serveText(text.toString(), flags);
    }

    /** Starts a server with this configuration. */
    static TestServer serveText(String text, String... flags) {
        try {
            Path directory = Files.createTempDirectory("leaseway-test");
            Path config = Files.writeString(directory.resolve("resources.yaml"), text);
            List<String> command = new ArrayList<>(List.of(binary(), "serve", "--config", config.toString()));
            command.addAll(List.of("--threads", "1"));
            command.addAll(List.of(flags));
            for (String flag : List.of("--listen", "--http")) {
                if (!command.contains(flag)) {
                    command.addAll(List.of(flag, "127.0.0.1:0"));
                }
            }
            return start(command, directory);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static TestServer start(List<String> command, Path directory) throws IOException {
        Path log = directory.resolve("log");
        Process process =
                new ProcessBuilder(command).redirectError(log.toFile()).start();
        var output = new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
        String line = output.readLine();
        Matcher found = SERVING_ON.matcher(line == null ? "" : line);
        if (!found.find()) {
            process.destroyForcibly();
            fail("the server wrote " + line + ", and logged:\n" + Files.readString(log));
        }
        var reader = new Thread(() -> output.lines().forEach(more -> {}));
        reader.setDaemon(true);
        reader.start();
        return new TestServer(found.group(1), process, directory);
    }

    void kill() {
        process.destroyForcibly();
        try {
            process.waitFor();
        } catch (InterruptedException e) {
            throw new AssertionError(e);
        }
    }

    @Override
    public void close() {
        kill();
        delete(directory);
    }

    static void delete(Path directory) {
        try (var files = Files.walk(directory)) {
            for (Path file : files.sorted((a, b) -> b.compareTo(a)).toList()) {
                Files.deleteIfExists(file);
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** Starts a node of three peers. */
    static List<TestServer> startPeers(List<Template> templates, Path data) {
        List<String> named = new ArrayList<>();
        for (int n = 0; n < 3; n++) {
            named.add("p" + n + "=" + freeAddress());
        }
        List<TestServer> servers = new ArrayList<>();
        for (int n = 0; n < 3; n++) {
            String directory = data.resolve("p" + n).toString();
            servers.add(serve(
                    templates,
                    ("--listen " + freeAddress() + " --data " + directory + " --admin 127.0.0.1:0 --peers "
                                    + String.join(",", named) + " --id p" + n + " --bootstrap")
                            .split(" ")));
        }
        return servers;
    }

    /**
     * An address that nobody listens on. Its port lies below those that the system gives to outgoing connections, so
     * none takes it before a server listens.
     */
    static String freeAddress() {
        while (true) {
            int port = ThreadLocalRandom.current().nextInt(10_000, 30_000);
            try (var socket = new ServerSocket(port, 1, InetAddress.getByName("127.0.0.1"))) {
                return "127.0.0.1:" + socket.getLocalPort();
            } catch (IOException taken) {
                // Another one, then.
            }
        }
    }

    /** Runs a command of the binary. */
    static void run(String... arguments) throws IOException, InterruptedException {
        List<String> command = new ArrayList<>(List.of(binary()));
        command.addAll(Arrays.asList(arguments));
        Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
        String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        assertTrue(process.waitFor() == 0, () -> command + ": " + output);
    }

    /** Waits until a condition is true. */
    static void eventually(String what, BooleanSupplier condition) {
        long end = System.nanoTime() + 60_000_000_000L;
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() - end > 0) {
                fail("not within a minute: " + what);
            }
            sleep(5);
        }
    }

    static void sleep(long milliseconds) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException e) {
            throw new AssertionError(e);
        }
    }
}
