import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.ql.DriverFactory;
import org.apache.hadoop.hive.ql.IDriver;
import org.apache.hadoop.hive.ql.session.SessionState;
import org.apache.hadoop.hive.serde2.thrift.ThriftFormatter;

/** Runs statements in a session of Hive, and prints their rows. */
public final class HiveRows {
    private static final String MARK = "HiveRows\t"; // Hive prints too
    private static final PrintStream OUT =
            new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);

    /** Argument: a folder, for the metastore too. Reads "NAME TAB STATEMENT" lines. */
    public static void main(String[] arguments) throws Exception {
        String folder = arguments[0];
        HiveConf conf = new HiveConf(HiveRows.class);
        String meta = "jdbc:derby:;create=true;databaseName=" + folder + "/meta";
        conf.set("javax.jdo.option.ConnectionURL", meta);
        conf.set("datanucleus.schema.autoCreateAll", "true");
        conf.set("hive.metastore.schema.verification", "false");
        conf.set("hive.metastore.warehouse.dir", "file://" + folder + "/managed");
        conf.set("hive.metastore.warehouse.external.dir", "file://" + folder + "/external");
        conf.set("hive.metastore.event.db.notification.api.auth", "false");
        conf.set("hive.exec.scratchdir", folder + "/scratch");
        conf.set("hive.exec.local.scratchdir", folder + "/local");
        conf.set("hive.execution.engine", "mr");
        conf.set("hive.fetch.task.conversion.threshold", "-1"); // no cluster: this process reads
        conf.set("hive.resultset.use.unique.column.names", "false");
        conf.set("hive.strict.timestamp.conversion", "false");
        conf.set("hive.parquet.date.proleptic.gregorian.default", "true");
        conf.set("hive.support.concurrency", "false");
        conf.set("hive.txn.manager", "org.apache.hadoop.hive.ql.lockmgr.DummyTxnManager");
        // As HiveServer2: rows are objects, and not lines of text.
        conf.set("list.sink.output.formatter", ThriftFormatter.class.getName());
        conf.set("list.sink.output.protocol", "10");
        SessionState.start(new SessionState(conf));
        BufferedReader statements =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = statements.readLine()) != null; ) {
            String[] parts = line.split("\t", 2);
            run(conf, parts[0], parts[1]);
        }
        OUT.flush();
        Runtime.getRuntime().halt(0); // Hive's threads do not end
    }

    /** A row as texts: bytes as hexadecimal digits, a nested value as Hive's JSON. */
    private static List<String> cells(Object[] row) {
        List<String> cells = new ArrayList<>();
        for (Object cell : row) {
            boolean bytes = cell instanceof byte[];
            String text = bytes ? HexFormat.of().formatHex((byte[]) cell) : String.valueOf(cell);
            cells.add(cell == null ? null : text);
        }
        return cells;
    }

    private static void print(String name, String kind, List<String> texts) throws Exception {
        OUT.println(MARK + name + "\t" + kind + "\t" + new ObjectMapper().writeValueAsString(texts));
    }

    private static void run(HiveConf conf, String name, String statement) throws Exception {
        try {
            IDriver driver = DriverFactory.newDriver(conf);
            driver.run(statement);
            List<String> columns = new ArrayList<>();
            if (driver.getSchema() != null && driver.getSchema().getFieldSchemas() != null) {
                driver.getSchema().getFieldSchemas().forEach(each -> columns.add(each.getName()));
            }
            print(name, "columns", columns);
            List<Object> rows = new ArrayList<>();
            while (driver.getResults(rows)) {
                for (Object row : rows) {
                    print(name, "row", cells((Object[]) row));
                }
                rows.clear();
            }
            driver.close();
        } catch (Exception error) {
            print(name, "error", List.of(String.valueOf(error.getMessage())));
        }
    }
}
