package io.leaseway.internal.transport;

import io.leaseway.OptionException;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.util.List;
import java.util.Locale;
import java.util.regex.Pattern;

/**
 * A parsed endpoint.
 *
 * @param address the normalised HOST:PORT: always with a port, and with IPv6 addresses in brackets
 * @param scheme whether it uses TLS
 */
public record Endpoint(String address, Scheme scheme) {
    /** The default port for clients, as for --listen of the server. */
    public static final int DEFAULT_PORT = 5100;

    /** The maximum length of a DNS name. */
    private static final int MAX_HOST_BYTES = 253;

    private static final String EXAMPLE = "write HOST:PORT, such as localhost:5100";
    private static final Pattern IPV6 = Pattern.compile("[0-9a-fA-F:.]*:[0-9a-fA-F:.]*");

    /** Whether an endpoint uses TLS. */
    public enum Scheme {
        /** HOST:PORT. */
        UNSPECIFIED,
        /** http://, without TLS. */
        PLAIN,
        /** https://. */
        TLS
    }

    /** Parses HOST:PORT, http://HOST:PORT or https://HOST:PORT. The default port is DEFAULT_PORT. */
    public static Endpoint parse(String text) {
        String rest = text.strip();
        Scheme scheme = Scheme.UNSPECIFIED;
        int separator = rest.indexOf("://");
        if (separator >= 0) {
            String name = rest.substring(0, separator).toLowerCase(Locale.ROOT);
            scheme = switch (name) {
                case "http" -> Scheme.PLAIN;
                case "https" -> Scheme.TLS;
                default -> throw bad(text, "unknown scheme `" + name + "://`: write HOST:PORT, or https://HOST:PORT");
            };
            rest = rest.substring(separator + 3);
            rest = rest.endsWith("/") ? rest.substring(0, rest.length() - 1) : rest;
        }
        return new Endpoint(parseAddress(text, rest), scheme);
    }

    private static String parseAddress(String text, String rest) {
        String host = rest;
        String port = Integer.toString(DEFAULT_PORT);
        long colons = rest.chars().filter(c -> c == ':').count();
        if (rest.startsWith("[")) {
            int end = rest.indexOf(']');
            if (end < 0) {
                throw bad(text, "missing closing bracket: write [::1]:5100");
            }
            host = rest.substring(1, end);
            if (!isIpv6(host)) {
                throw bad(text, "`" + host + "` is not an IPv6 address");
            }
            String after = rest.substring(end + 1);
            if (!after.isEmpty() && after.charAt(0) != ':') {
                throw bad(text, "expected `:` and a port after the bracket");
            }
            port = after.isEmpty() ? port : after.substring(1);
        } else if (!isIpv6(rest)) {
            if (colons > 1) {
                throw bad(text, "several colons: write HOST:PORT, with an IPv6 address in brackets");
            }
            if (colons == 1) {
                host = rest.substring(0, rest.indexOf(':'));
                port = rest.substring(rest.indexOf(':') + 1);
            }
            String fault = faultOf(host);
            if (fault != null) {
                throw bad(text, fault);
            }
        }
        int number = port.matches("[0-9]{1,5}") ? Integer.parseInt(port) : 0;
        if (number < 1 || number > 65_535) {
            throw bad(text, "the port `" + port + "` is not a number from 1 to 65535");
        }
        return (host.indexOf(':') >= 0 ? "[" + host + "]" : host) + ":" + number;
    }

    private static boolean isIpv6(String text) {
        if (!IPV6.matcher(text).matches()) {
            return false;
        }
        try {
            // Brackets keep it from asking a resolver.
            InetAddress.getByName("[" + text + "]");
            return true;
        } catch (UnknownHostException e) {
            return false;
        }
    }

    /**
     * Returns what is wrong with a host, or null. It allows what URLs and resolvers accept. Underscores are not valid in
     * host names, but container platforms use them.
     */
    private static String faultOf(String host) {
        if (host.isEmpty()) {
            return "missing host: " + EXAMPLE;
        }
        if (host.length() > MAX_HOST_BYTES) {
            return "the host has more than " + MAX_HOST_BYTES + " bytes";
        }
        for (char c : host.toCharArray()) {
            boolean isLetter = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z';
            if (isLetter || c >= '0' && c <= '9' || c == '.' || c == '-' || c == '_') {
                continue;
            }
            return switch (c) {
                case '/' -> "unexpected path: write HOST:PORT";
                case ',' -> "unexpected comma: write one server";
                default -> "invalid character `" + c + "` in the host: " + EXAMPLE;
            };
        }
        return null;
    }

    /** Checks the name that certificates of servers must be for. Returns it as an authority of gRPC. */
    public static String serverName(String name) {
        if (isIpv6(name)) {
            return "[" + name + "]";
        }
        if (faultOf(name) != null) {
            throw new OptionException("server name \"" + shortened(name) + "\"", "it is not the name of a host");
        }
        return name;
    }

    private static OptionException bad(String text, String why) {
        return new OptionException("server address \"" + shortened(text) + "\"", why);
    }

    private static String shortened(String text) {
        return text.substring(0, Math.min(text.length(), MAX_HOST_BYTES));
    }

    /**
     * Returns whether these servers of one node use TLS. Either all do or none, because each may redirect a client to
     * any other. isWanted says that TLS was selected by other means.
     */
    public static boolean useTls(List<Endpoint> endpoints, boolean isWanted) {
        String plain = null;
        String secured = null;
        for (Endpoint endpoint : endpoints) {
            if (endpoint.scheme == Scheme.PLAIN) {
                plain = endpoint.address;
            } else if (endpoint.scheme == Scheme.TLS) {
                secured = endpoint.address;
            }
        }
        if (plain != null && secured != null) {
            throw bad(
                    "http://" + plain,
                    "it does not use TLS, but https://" + secured + " does: use https:// for all servers");
        }
        if (plain != null && isWanted) {
            throw bad("http://" + plain, "http:// conflicts with TLS options: write https://, or HOST:PORT");
        }
        return isWanted || secured != null;
    }

    /** Returns whether an address is on this machine. */
    public static boolean isLoopback(String address) {
        String host = address.substring(0, Math.max(address.lastIndexOf(':'), 0));
        return host.equalsIgnoreCase("localhost") || host.equals("[::1]") || host.matches("127(\\.[0-9]{1,3}){3}");
    }
}
