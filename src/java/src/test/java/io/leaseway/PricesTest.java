package io.leaseway;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.IOException;
import java.math.BigInteger;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.function.Consumer;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;
import org.junit.jupiter.api.function.Executable;

final class PricesTest {
    private static Stream<DynamicTest> each(JsonObject file, String list, Consumer<JsonObject> check) {
        return StreamSupport.stream(file.getAsJsonArray(list).spliterator(), false)
                .map(JsonElement::getAsJsonObject)
                .map(vector -> DynamicTest.dynamicTest(vector.toString(), () -> check.accept(vector)));
    }

    private static Prices table(JsonObject vector) {
        return Prices.fromJson(vector.get("table").getAsString());
    }

    private static double cost(JsonObject vector) {
        var usage = new LinkedHashMap<String, Long>();
        vector.getAsJsonObject("usage")
                .entrySet()
                .forEach(used -> usage.put(used.getKey(), used.getValue().getAsLong()));
        return table(vector).cost(vector.get("model").getAsString(), usage);
    }

    private static void refused(JsonObject vector, Executable call) {
        String message = assertThrows(IllegalArgumentException.class, call).getMessage();
        assertTrue(message.startsWith("leaseway: "), message);
        vector.getAsJsonArray("says").forEach(part -> assertTrue(message.contains(part.getAsString()), message));
    }

    /** The file describes its fields. The other clients read it, too. */
    @TestFactory
    Stream<DynamicTest> vectorsOfAllClients() throws IOException {
        String text = Files.readString(Path.of("../go/testdata/prices.json"));
        JsonObject file = JsonParser.parseString(text).getAsJsonObject();
        return Stream.of(
                        each(
                                file,
                                "costs",
                                vector -> assertEquals(vector.get("amount").getAsDouble(), cost(vector))),
                        each(file, "refused_costs", vector -> refused(vector, () -> cost(vector))),
                        each(file, "refused_tables", vector -> refused(vector, () -> table(vector))))
                .flatMap(tests -> tests);
    }

    @Test
    void unitsAreWholeNumbersFromZero() {
        Prices prices = Prices.fromJson("{\"m\": {\"a\": 0.1}}");
        assertEquals(0.3, prices.cost("m", Map.of("a", 3)));
        assertEquals(0.3, prices.cost("m", Map.of("a", BigInteger.valueOf(3))));
        for (Number units : new Number[] {-1, -1L, 0.5, 1.0}) {
            assertThrows(IllegalArgumentException.class, () -> prices.cost("m", Map.of("a", units)));
        }
    }
}
