import com.fasterxml.jackson.databind.ObjectMapper;
import io.trino.Session;
import io.trino.plugin.iceberg.IcebergPlugin;
import io.trino.spi.type.ArrayType;
import io.trino.spi.type.MapType;
import io.trino.spi.type.RowType;
import io.trino.spi.type.SqlVarbinary;
import io.trino.spi.type.Type;
import io.trino.testing.MaterializedResult;
import io.trino.testing.MaterializedRow;
import io.trino.testing.StandaloneQueryRunner;
import io.trino.testing.TestingSession;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** Prints the rows of Iceberg tables by offset, as Trino reads them. */
public final class TrinoRows {
    /**
     * Arguments: the URL of a JDBC catalog, a namespace, and its tables. Prints "TABLE TAB JSON".
     *
     * <p>A scalar is {":TYPE": TEXT}, unless it is a boolean or a text. A map is a list of pairs.
     */
    public static void main(String[] arguments) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err); // Trino logs to it
        Session session =
                TestingSession.testSessionBuilder()
                        .setCatalog("headworks")
                        .setSchema(arguments[1])
                        .build();
        StandaloneQueryRunner trino = new StandaloneQueryRunner(session);
        trino.installPlugin(new IcebergPlugin());
        trino.createCatalog("headworks", "iceberg", settings(arguments[0]));
        ObjectMapper json = new ObjectMapper();
        for (String table : Arrays.asList(arguments).subList(2, arguments.length)) {
            MaterializedResult found =
                    trino.execute("SELECT * FROM \"" + table + "\" ORDER BY _offset");
            for (MaterializedRow row : found) {
                Map<String, Object> values = new LinkedHashMap<>();
                for (int i = 0; i < found.getTypes().size(); i++) {
                    Object value = value(found.getTypes().get(i), row.getField(i));
                    values.put(found.getColumnNames().get(i), value);
                }
                out.println(table + "\t" + json.writeValueAsString(values));
            }
        }
        out.flush();
        Runtime.getRuntime().halt(0); // Trino's threads do not end
    }

    private static Map<String, String> settings(String url) {
        return Map.of(
                "iceberg.catalog.type", "jdbc",
                "iceberg.jdbc-catalog.catalog-name", "headworks",
                "iceberg.jdbc-catalog.driver-class", "org.sqlite.JDBC",
                "iceberg.jdbc-catalog.connection-url", url,
                "iceberg.jdbc-catalog.default-warehouse-dir", "file:///unused",
                "fs.hadoop.enabled", "true");
    }

    private static Object value(Type type, Object found) {
        if (found == null || found instanceof Boolean || found instanceof String) {
            return found;
        }
        if (type instanceof RowType row) {
            return members(row, found instanceof MaterializedRow r ? r.getFields() : (List<?>) found);
        }
        List<Object> values = new ArrayList<>();
        if (type instanceof ArrayType array) {
            for (Object item : (List<?>) found) {
                values.add(value(array.getElementType(), item));
            }
            return values;
        }
        if (type instanceof MapType map) {
            new TreeMap<>((Map<?, ?>) found)
                    .forEach((key, item) -> values.add(pair(key, value(map.getValueType(), item))));
            return values;
        }
        return Map.of(":" + type.getBaseName(), text(found));
    }

    private static String text(Object found) {
        return switch (found) {
            case byte[] bytes -> HexFormat.of().formatHex(bytes);
            case SqlVarbinary bytes -> HexFormat.of().formatHex(bytes.getBytes());
            default -> found.toString();
        };
    }

    private static Map<String, Object> members(RowType row, List<?> found) {
        Map<String, Object> values = new LinkedHashMap<>();
        for (int i = 0; i < found.size(); i++) {
            RowType.Field field = row.getFields().get(i);
            values.put(field.getName().orElseThrow(), value(field.getType(), found.get(i)));
        }
        return values;
    }

    private static List<Object> pair(Object key, Object value) {
        return Arrays.asList(key, value); // List.of refuses null
    }
}
