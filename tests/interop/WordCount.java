import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Materialized;

/**
 * Kafka Streams: counts words, exactly once. It never repartitions: the key of a message is its word.
 *
 * WordCount BOOTSTRAP SOURCE TARGET STATE-FOLDER [KEY=VALUE ...]
 *
 * Rules: the counts are a store with a changelog; each message in gives one message out, the word
 * and its count; "running" is printed when the first partitions are read; SIGTERM ends it.
 */
public final class WordCount {
    private WordCount() {}

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("application.id", "word-count");
        properties.put("state.dir", arguments[3]);
        properties.put("processing.guarantee", "exactly_once_v2");
        properties.put("statestore.cache.max.bytes", "0");
        properties.put("default.key.serde", Serdes.StringSerde.class);
        properties.put("default.value.serde", Serdes.StringSerde.class);
        properties.put("consumer.auto.offset.reset", "earliest");
        for (String more : List.of(arguments).subList(4, arguments.length)) {
            String[] pair = more.split("=", 2);
            properties.put(pair[0], pair[1]);
        }
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(arguments[1])
            .groupByKey()
            .count(Materialized.as("counts"))
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to(arguments[2]);
        try (KafkaStreams streams = new KafkaStreams(builder.build(), properties)) {
            CountDownLatch ended = new CountDownLatch(1);
            streams.setStateListener((now, before) -> {
                if (now == KafkaStreams.State.RUNNING) {
                    System.out.println("running");
                }
            });
            streams.setUncaughtExceptionHandler(error -> {
                error.printStackTrace();
                return StreamThreadExceptionResponse.REPLACE_THREAD;
            });
            Runtime.getRuntime().addShutdownHook(new Thread(() -> {
                streams.close(Duration.ofSeconds(20));
                ended.countDown();
            }));
            streams.start();
            ended.await();
        }
    }
}
