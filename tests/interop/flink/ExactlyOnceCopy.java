import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.Optional;
import java.util.stream.Stream;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.ExternalizedCheckpointRetention;
import org.apache.flink.configuration.RestartStrategyOptions;
import org.apache.flink.configuration.StateRecoveryOptions;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.sink.TransactionNamingStrategy;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * Apache Flink: copies the values of a topic to another, exactly once.
 *
 * ExactlyOnceCopy BOOTSTRAP SOURCE TARGET CHECKPOINT-FOLDER NAMING
 *
 * Rules: it starts from the last complete checkpoint of the folder, if there is one; it never ends
 * by itself, and a failed task ends it.
 */
public final class ExactlyOnceCopy {
    private ExactlyOnceCopy() {}

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        Path folder = Path.of(arguments[3]);
        Configuration settings = new Configuration();
        settings.set(CheckpointingOptions.CHECKPOINTS_DIRECTORY, folder.toUri().toString());
        settings.set(
            CheckpointingOptions.EXTERNALIZED_CHECKPOINT_RETENTION,
            ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION);
        settings.set(RestartStrategyOptions.RESTART_STRATEGY, "none");
        Optional<Path> last = lastCheckpoint(folder);
        if (last.isPresent()) {
            settings.set(StateRecoveryOptions.SAVEPOINT_PATH, last.get().toUri().toString());
            System.out.println("restored " + last.get().getFileName());
        }
        StreamExecutionEnvironment environment =
            StreamExecutionEnvironment.createLocalEnvironment(2, settings);
        environment.enableCheckpointing(500);
        KafkaSource<String> source = KafkaSource.<String>builder()
            .setBootstrapServers(bootstrap)
            .setTopics(arguments[1])
            .setGroupId("flink")
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setValueOnlyDeserializer(new SimpleStringSchema())
            .build();
        KafkaSink<String> sink = KafkaSink.<String>builder()
            .setBootstrapServers(bootstrap)
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix("flink-" + arguments[2])
            .setTransactionNamingStrategy(TransactionNamingStrategy.valueOf(arguments[4]))
            // The brokers' maximum. Flink goes on without a transaction that timed out before its
            // commit, and a busy machine can need minutes for a restart.
            .setProperty("transaction.timeout.ms", "900000")
            .setRecordSerializer(KafkaRecordSerializationSchema.<String>builder()
                .setTopic(arguments[2])
                .setValueSerializationSchema(new SimpleStringSchema())
                .build())
            .build();
        environment
            .fromSource(source, WatermarkStrategy.noWatermarks(), "source").uid("source")
            .sinkTo(sink).uid("sink");
        environment.execute("copy");
    }

    /** The newest checkpoint that is complete: its folder has the file _metadata. */
    private static Optional<Path> lastCheckpoint(Path folder) throws IOException {
        if (!Files.isDirectory(folder)) {
            return Optional.empty();
        }
        try (Stream<Path> found = Files.walk(folder, 3)) {
            return found
                .filter(path -> path.endsWith("_metadata"))
                .map(Path::getParent)
                .max(Comparator.comparingInt(ExactlyOnceCopy::number));
        }
    }

    private static int number(Path checkpoint) {
        return Integer.parseInt(checkpoint.getFileName().toString().substring("chk-".length()));
    }
}
