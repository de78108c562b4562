import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;

/** Prints the rows of Iceberg tables by offset, as a Spark with Iceberg's runtime reads them. */
public final class IcebergRows {
    /** Arguments: the URL of a JDBC catalog, a namespace, and its tables. Prints "TABLE TAB JSON". */
    public static void main(String[] arguments) {
        String catalog = "spark.sql.catalog.headworks";
        SparkSession spark =
                SparkSession.builder()
                        .master("local[1]")
                        .config("spark.ui.enabled", "false")
                        .config("spark.driver.bindAddress", "127.0.0.1")
                        .config("spark.driver.host", "127.0.0.1")
                        .config("spark.sql.session.timeZone", "UTC")
                        .config("spark.sql.shuffle.partitions", "1")
                        .config("spark.sql.jsonGenerator.ignoreNullFields", "false")
                        .config(catalog, "org.apache.iceberg.spark.SparkCatalog")
                        .config(catalog + ".type", "jdbc")
                        .config(catalog + ".uri", arguments[0])
                        .config(catalog + ".warehouse", "unused")
                        .getOrCreate();
        for (int i = 2; i < arguments.length; i++) {
            String table = "headworks." + arguments[1] + ".`" + arguments[i] + "`";
            String query = "SELECT to_json(struct(*)) FROM " + table + " ORDER BY _offset";
            for (Row row : spark.sql(query).collectAsList()) {
                System.out.println(arguments[i] + "\t" + row.getString(0));
            }
        }
        spark.stop();
    }
}
