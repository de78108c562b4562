/**
 * Changes of Iceberg tables in few calls: py4j takes longer for a call than Iceberg for most.
 *
 * Rules:
 *
 * - Python decides what changes. This class does it, and reads what the decision needs.
 * - A file is in the partition of its day only if its statistics prove it: no null, and every time
 *   in that day of UTC. Any other file is in no partition.
 * - Of a data file only the footer is read. All footers are read with one configuration: without
 *   one, Parquet parses Hadoop's XML for each.
 * - Janino compiles this file, so it has no lambdas and no generics.
 */

import java.nio.ByteBuffer;
import java.time.LocalDate;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Stream;

import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.iceberg.AppendFiles;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DataFiles;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.HasTableOperations;
import org.apache.iceberg.Metrics;
import org.apache.iceberg.MetricsConfig;
import org.apache.iceberg.OverwriteFiles;
import org.apache.iceberg.PartitionField;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.RewriteFiles;
import org.apache.iceberg.Schema;
import org.apache.iceberg.SchemaParser;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.SnapshotUpdate;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.TableOperations;
import org.apache.iceberg.Transaction;
import org.apache.iceberg.UpdateProperties;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.mapping.NameMapping;
import org.apache.iceberg.mapping.NameMappingParser;
import org.apache.iceberg.parquet.ParquetUtil;
import org.apache.iceberg.shaded.org.apache.parquet.ParquetReadOptions;
import org.apache.iceberg.shaded.org.apache.parquet.conf.HadoopParquetConfiguration;
import org.apache.iceberg.shaded.org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.iceberg.shaded.org.apache.parquet.hadoop.util.HadoopInputFile;
import org.apache.iceberg.types.Conversions;
import org.apache.iceberg.types.Types;

public class TableCalls {
    private static final long MICROS_OF_DAY = 86400000000L;

    private final Configuration settings;
    private final HadoopParquetConfiguration parquet;
    private final ObjectMapper json = new ObjectMapper();

    public TableCalls(Configuration settings) {
        this.settings = settings;
        this.parquet = new HadoopParquetConfiguration(settings);
    }

    /** Begins to make a table without fields. */
    public Transaction create(
        Catalog catalog, TableIdentifier name, String location, String formatVersion
    ) {
        return catalog
            .buildTable(name, new Schema(new ArrayList()))
            .withLocation(location)
            .withProperty("format-version", formatVersion)
            .createTransaction();
    }

    /** Returns JSON: the schema, the format version, and a property of the current snapshot. */
    public String describe(Table table, String property) throws Exception {
        Snapshot snapshot = table.currentSnapshot();
        Map found = new LinkedHashMap();
        found.put("schema", SchemaParser.toJson(table.schema()));
        found.put("format", Integer.valueOf(operations(table).current().formatVersion()));
        found.put("property", snapshot == null ? null : snapshot.summary().get(property));
        return json.writeValueAsString(found);
    }

    public int snapshots(Table table) {
        return operations(table).current().snapshots().size();
    }

    /** Gives the table the ids of its files, which no ordinary change of a schema allows. */
    public void setSchema(Table table, String fields, int lastId) {
        Schema schema = SchemaParser.fromJson(fields);
        if (table.schema().sameSchema(schema)) {
            return;
        }
        TableMetadata base = operations(table).current();
        int last = Math.max(lastId, base.lastColumnId());
        TableMetadata next = TableMetadata.buildFrom(base).setCurrentSchema(schema, last).build();
        operations(table).commit(base, next);
    }

    /** Stops partitioning new files by any column but the one with this id. */
    public void leavePartition(Transaction transaction, Table table, int column) {
        List fields = table.spec().fields();
        for (int i = 0; i < fields.size(); i++) {
            PartitionField field = (PartitionField) fields.get(i);
            if (field.sourceId() != column) {
                transaction.updateSpec().removeField(field.name()).commit();
            }
        }
    }

    /** Partitions new files by the day of a column, unless they are partitioned already. */
    public void enterPartition(Transaction transaction, Table table, String column) {
        if (!table.spec().isUnpartitioned()) {
            return;
        }
        String name = column + "_day";
        while (table.schema().findField(name) != null) {
            name += "_";
        }
        transaction.updateSpec().addField(name, Expressions.day(column)).commit();
    }

    /** Sets properties, which are a JSON object. */
    public void setProperties(Transaction transaction, String properties) throws Exception {
        UpdateProperties update = transaction.updateProperties();
        Iterator entries = ((Map) json.readValue(properties, Map.class)).entrySet().iterator();
        while (entries.hasNext()) {
            Map.Entry entry = (Map.Entry) entries.next();
            update.set((String) entry.getKey(), (String) entry.getValue());
        }
        update.commit();
    }

    /** Returns the locations of the data files of the current snapshot, as a JSON array. */
    public String locations(Table table) throws Exception {
        List found = new ArrayList();
        Iterator files = files(table).iterator();
        while (files.hasNext()) {
            found.add(((DataFile) files.next()).location());
        }
        return json.writeValueAsString(found);
    }

    /**
     * Commits an update of a table's files.
     *
     * `change` is JSON: `leaving`, the locations of files of `before`; `added`, files as location,
     * bytes and day; `names`, the mapping of names that gives the columns of files their ids;
     * `day_id`, the id of the column of the day, or null; and `summary`, of the snapshot.
     */
    public void commitFiles(SnapshotUpdate update, Table before, Table table, String change)
        throws Exception {
        Map given = (Map) json.readValue(change, Map.class);
        Set leaving = new HashSet((List) given.get("leaving"));
        if (!leaving.isEmpty()) {
            Iterator files = files(before).iterator();
            while (files.hasNext()) {
                DataFile file = (DataFile) files.next();
                if (leaving.contains(file.location())) {
                    delete(update, file);
                }
            }
        }
        List added = (List) given.get("added");
        if (!added.isEmpty()) {
            NameMapping names = NameMappingParser.fromJson((String) given.get("names"));
            MetricsConfig config = MetricsConfig.forTable(table);
            for (int i = 0; i < added.size(); i++) {
                List file = (List) added.get(i);
                String location = (String) file.get(0);
                long bytes = ((Number) file.get(1)).longValue();
                Metrics metrics = metrics(location, bytes, config, names);
                Object day = file.get(2);
                add(update, dataFile(table, metrics, location, bytes, given.get("day_id"), day));
            }
        }
        Iterator entries = ((Map) given.get("summary")).entrySet().iterator();
        while (entries.hasNext()) {
            Map.Entry entry = (Map.Entry) entries.next();
            update.set((String) entry.getKey(), (String) entry.getValue());
        }
        update.commit();
    }

    private static void add(SnapshotUpdate update, DataFile file) {
        if (update instanceof AppendFiles) {
            ((AppendFiles) update).appendFile(file);
        } else if (update instanceof RewriteFiles) {
            ((RewriteFiles) update).addFile(file);
        } else {
            ((OverwriteFiles) update).addFile(file);
        }
    }

    private static void delete(SnapshotUpdate update, DataFile file) {
        if (update instanceof RewriteFiles) {
            ((RewriteFiles) update).deleteFile(file);
        } else {
            ((OverwriteFiles) update).deleteFile(file);
        }
    }

    /** Returns the statistics in a file's footer, by the ids of the table. */
    private Metrics metrics(String location, long bytes, MetricsConfig config, NameMapping names)
        throws Exception {
        FileStatus status = new FileStatus(bytes, false, 1, 1L, 0L, new Path(location));
        ParquetFileReader reader = ParquetFileReader.open(
            HadoopInputFile.fromStatus(status, settings),
            ParquetReadOptions.builder(parquet).build()
        );
        try {
            Stream none = new ArrayList().stream(); // Janino calls no static method of an interface
            return ParquetUtil.footerMetrics(reader.getFooter(), none, config, names);
        } finally {
            reader.close();
        }
    }

    private static DataFile dataFile(
        Table table, Metrics metrics, String location, long bytes, Object dayId, Object day
    ) {
        String date = ((String) day).substring(0, 10); // it may be an hour of one
        boolean inDay = dayId != null && isOfDay(metrics, (Integer) dayId, date);
        PartitionSpec spec = inDay ? table.spec() : noPartition(table);
        // Not by the input file: Hadoop would write its URI otherwise, and compare it as text.
        DataFiles.Builder builder = DataFiles.builder(spec)
            .withPath(location)
            .withFileSizeInBytes(bytes)
            .withFormat("parquet")
            .withMetrics(metrics);
        if (inDay) {
            String name = ((PartitionField) spec.fields().get(0)).name();
            builder.withPartitionPath(name + "=" + date);
        }
        return builder.build();
    }

    private static PartitionSpec noPartition(Table table) {
        Iterator specs = table.specs().values().iterator();
        while (true) {
            PartitionSpec spec = (PartitionSpec) specs.next();
            if (spec.isUnpartitioned()) {
                return spec;
            }
        }
    }

    /** Returns whether a file's statistics prove that each time in it is in one day of UTC. */
    private static boolean isOfDay(Metrics metrics, Integer column, String date) {
        Object nulls = metrics.nullValueCounts().get(column);
        Object lower = metrics.lowerBounds().get(column);
        Object upper = metrics.upperBounds().get(column);
        if (nulls == null || ((Long) nulls).longValue() != 0 || lower == null || upper == null) {
            return false;
        }
        long day = LocalDate.parse(date).toEpochDay();
        return day(lower) == day && day(upper) == day;
    }

    private static long day(Object bound) {
        Object time =
            Conversions.fromByteBuffer(Types.TimestampType.withZone(), (ByteBuffer) bound);
        return Math.floorDiv(((Long) time).longValue(), MICROS_OF_DAY);
    }

    private static List files(Table table) throws Exception {
        List found = new ArrayList();
        if (table.currentSnapshot() == null) {
            return found;
        }
        CloseableIterable tasks = table.newScan().planFiles();
        try {
            Iterator each = tasks.iterator();
            while (each.hasNext()) {
                found.add(((FileScanTask) each.next()).file());
            }
        } finally {
            tasks.close();
        }
        return found;
    }

    private static TableOperations operations(Table table) {
        return ((HasTableOperations) table).operations();
    }
}
