package io.leaseway;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.MathContext;
import java.math.RoundingMode;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Function;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

/**
 * Prices per unit, by the name of a model and the name of a kind of usage. They turn usage into amounts of a
 * {@link Budget}. Prices are decimal numbers, and sums are exact.
 */
public final class Prices {
    /** The maximum number of decimal places of a price. */
    private static final int PLACES = 18;

    /** The maximum price, and the maximum amount of a budget. */
    private static final BigDecimal MAX = new BigDecimal("1e15");

    /** Decimal digits that every double has. */
    private static final MathContext ROUND_UP = new MathContext(15, RoundingMode.UP);

    /** The maximum number of names that an error lists. */
    private static final int MAX_KNOWN = 5;

    private static final Pattern DECIMAL = Pattern.compile("-?[0-9]+(?:\\.[0-9]*)?(?:[eE][+-]?[0-9]+)?");

    private final Map<String, Map<String, BigDecimal>> models;

    private Prices(Map<String, Map<String, BigDecimal>> models) {
        this.models = models;
    }

    /**
     * Reads a table like <code>{"gpt-4o": {"input": 0.0000025, "output": "0.00001"}}</code>. A price is a number, or a
     * string with a number, from 0 to 10^15 with at most 18 decimal places.
     *
     * @param json the table
     * @throws IllegalArgumentException if the table is invalid
     */
    public static Prices fromJson(String json) {
        var reader = new TableReader(json);
        var models = reader.object(
                "the prices of models",
                "the model",
                model -> reader.object(
                        "the prices of " + quoted(model),
                        "the price of " + quoted(model) + " for",
                        usage -> price(model, usage, reader.price())));
        reader.end();
        return new Prices(models);
    }

    private static BigDecimal price(String model, String usage, String text) {
        String wrong = "is not a decimal number";
        try {
            if (DECIMAL.matcher(text).matches()) {
                BigDecimal price = new BigDecimal(text);
                if (text.startsWith("-")) {
                    wrong = "is negative";
                } else if (price.signum() == 0) {
                    return BigDecimal.ZERO;
                } else if (price.stripTrailingZeros().scale() > PLACES) {
                    wrong = "has more than 18 decimal places";
                } else if (price.compareTo(MAX) > 0) {
                    wrong = "is larger than 1e15";
                } else {
                    return price;
                }
            }
        } catch (NumberFormatException | ArithmeticException e) {
            // Its exponent is beyond the range of an int.
        }
        throw new IllegalArgumentException(
                TableReader.INVALID + "the price of " + quoted(usage) + " for " + quoted(model) + " " + wrong);
    }

    /**
     * Returns the cost of this usage: the sum of price times units, which is computed exactly and then rounded up to 15
     * significant digits.
     *
     * @param model the model
     * @param usage units by the name of the kind of usage
     * @throws IllegalArgumentException if there is no price for the model or the usage, which the message names, if a
     *     number of units is negative, or if the usage costs more than 10^15
     */
    public double cost(String model, Map<String, ? extends Number> usage) {
        Map<String, BigDecimal> prices = models.get(model);
        if (prices == null) {
            throw new IllegalArgumentException(
                    "leaseway: no prices for the model " + quoted(model) + "; " + known(models));
        }
        BigDecimal total = BigDecimal.ZERO;
        for (Map.Entry<String, ? extends Number> used : usage.entrySet()) {
            String name = used.getKey();
            BigDecimal price = prices.get(name);
            if (price == null) {
                throw new IllegalArgumentException("leaseway: the model " + quoted(model) + " has no price for "
                        + quoted(name) + "; " + known(prices));
            }
            total = total.add(price.multiply(new BigDecimal(units(name, used.getValue()))));
        }
        if (total.compareTo(MAX) > 0) {
            throw new IllegalArgumentException("leaseway: the usage of the model " + quoted(model)
                    + " costs more than 1e15, the largest amount of a budget: check the units and the prices");
        }
        return total.round(ROUND_UP).doubleValue();
    }

    private static BigInteger units(String name, Number units) {
        if (!(units instanceof Integer || units instanceof Long || units instanceof BigInteger)) {
            throw new IllegalArgumentException(
                    "leaseway: units of " + quoted(name) + ", " + units + ", are no Integer, Long or BigInteger");
        }
        var whole = new BigInteger(units.toString());
        if (whole.signum() < 0) {
            throw new IllegalArgumentException(
                    "leaseway: a negative number of units of " + quoted(name) + ": " + units);
        }
        return whole;
    }

    /** Returns a name in quotes, with control characters escaped. */
    private static String quoted(String name) {
        var text = new StringBuilder("\"");
        name.chars().forEach(c -> {
            if (c == '"' || c == '\\') {
                text.append('\\').append((char) c);
            } else if (c == '\n') {
                text.append("\\n");
            } else if (Character.isISOControl(c)) {
                text.append(String.format("\\u%04x", c));
            } else {
                text.append((char) c);
            }
        });
        return text.append('"').toString();
    }

    /** Returns the first names of a table, for the end of an error. */
    private static String known(Map<String, ?> table) {
        if (table.isEmpty()) {
            return "the table has none";
        }
        String first = table.keySet().stream().limit(MAX_KNOWN).collect(Collectors.joining(", "));
        int more = table.size() - MAX_KNOWN;
        return "known: " + first + (more > 0 ? " and " + more + " more" : "");
    }

    /** Reads a JSON object. Keeps the text of numbers, and refuses equal keys. */
    private static final class TableReader {
        static final String INVALID = "leaseway: invalid price table: ";

        private static final Pattern SPACE = Pattern.compile("[ \\t\\r\\n]*");
        private static final Pattern NUMBER =
                Pattern.compile("-?(?:0|[1-9][0-9]*)(?:\\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![\\w.+-])");
        private static final Pattern STRING = Pattern.compile("\"([^\"\\\\]*)\"");
        private static final Pattern PART_OF_KEY =
                Pattern.compile("([^\"\\\\\\x00-\\x1f]+)|\\\\([\"\\\\/bfnrt])|\\\\u([0-9a-fA-F]{4})");

        private final String json;
        private final Matcher matcher;
        private int at;

        TableReader(String json) {
            this.json = json;
            matcher = SPACE.matcher(json);
        }

        /** Reads an object. read reads the value of each key. */
        <T> Map<String, T> object(String what, String ofKey, Function<String, T> read) {
            var entries = new TreeMap<String, T>();
            if (!take('{')) {
                throw wrong("expected " + what + " as an object like {\"input\": 0.0000025}");
            }
            if (take('}')) {
                return entries;
            }
            do {
                String key = key();
                if (entries.containsKey(key)) {
                    throw wrong(ofKey + " " + quoted(key) + " is given twice");
                }
                if (!take(':')) {
                    throw wrong("expected `:`");
                }
                entries.put(key, read.apply(key));
            } while (take(','));
            if (!take('}')) {
                throw wrong("expected `,` or `}`");
            }
            return entries;
        }

        /** Returns the text of a number or of a string. For other values, which are no prices, it is empty. */
        String price() {
            skipSpace();
            if (match(NUMBER)) {
                return matcher.group();
            }
            return match(STRING) ? matcher.group(1) : "";
        }

        void end() {
            skipSpace();
            if (at < json.length()) {
                throw wrong("trailing characters");
            }
        }

        private String key() {
            if (!take('"')) {
                throw wrong("expected a name in quotes");
            }
            var key = new StringBuilder();
            while (match(PART_OF_KEY)) {
                if (matcher.group(1) != null) {
                    key.append(matcher.group(1));
                } else if (matcher.group(2) != null) {
                    char c = matcher.group(2).charAt(0);
                    int escaped = "bfnrt".indexOf(c);
                    key.append(escaped < 0 ? c : "\b\f\n\r\t".charAt(escaped));
                } else {
                    key.append((char) Integer.parseInt(matcher.group(3), 16));
                }
            }
            if (at == json.length() || json.charAt(at) != '"') {
                throw wrong("expected a character of a name, or its closing quote");
            }
            at++;
            return key.toString();
        }

        private boolean take(char character) {
            skipSpace();
            boolean isNext = at < json.length() && json.charAt(at) == character;
            if (isNext) {
                at++;
            }
            return isNext;
        }

        private void skipSpace() {
            match(SPACE);
        }

        private boolean match(Pattern token) {
            boolean isNext = matcher.usePattern(token).region(at, json.length()).lookingAt();
            if (isNext) {
                at = matcher.end();
            }
            return isNext;
        }

        private IllegalArgumentException wrong(String why) {
            return new IllegalArgumentException(INVALID + why + ", at position " + at);
        }
    }
}
