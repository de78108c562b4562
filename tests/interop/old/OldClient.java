import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * The first Java client that writes today's record format (Kafka 0.11, of 2017) on the broker under test.
 *
 * OldClient BOOTSTRAP TOPIC: creates the topic, writes with each codec, reads in a group, commits,
 * aborts, is fenced, lets a transaction time out, and deletes the topic. It ends with a stack trace if
 * anything is not as it must be.
 */
public final class OldClient {
    private static final long PATIENCE_MS = 60_000;
    private static final List<String> CODECS = Arrays.asList("none", "gzip", "snappy", "lz4");

    private final String bootstrap;
    private final String topic;
    private final TopicPartition place;

    private OldClient(String bootstrap, String topic) {
        this.bootstrap = bootstrap;
        this.topic = topic;
        this.place = new TopicPartition(topic, 0);
    }

    public static void main(String[] arguments) throws Exception {
        OldClient client = new OldClient(arguments[0], arguments[1]);
        try (AdminClient admin = AdminClient.create(client.properties())) {
            client.create(admin);
            client.write();
            client.readInGroup();
            client.transactions();
            admin.deleteTopics(Collections.singleton(client.topic)).all().get();
            must(!admin.listTopics().names().get().contains(client.topic), "the topic is deleted");
        }
        System.out.println("done");
    }

    private void create(AdminClient admin) throws Exception {
        NewTopic wanted = new NewTopic(topic, 1, (short) 1);
        wanted.configs(Collections.singletonMap("retention.ms", "-1"));
        admin.createTopics(Collections.singleton(wanted)).all().get();
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Map<ConfigResource, Config> found = admin.describeConfigs(Collections.singleton(resource)).all().get();
        must(found.get(resource).get("retention.ms").value().equals("-1"), "the config is shown");
        must(admin.describeTopics(Collections.singleton(topic)).all().get().get(topic).partitions().size() == 1,
            "the topic has one partition");
        must(admin.describeCluster().nodes().get().size() == 1, "the cluster has one node");
    }

    private void write() throws Exception {
        for (String codec : CODECS) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            try (KafkaProducer<String, String> producer =
                    producer("compression.type", codec, "enable.idempotence", "true", "linger.ms", "50")) {
                for (int number = 0; number < 3; number++) {
                    ProducerRecord<String, String> record = new ProducerRecord<>(topic, codec, codec + number);
                    record.headers().add("codec", codec.getBytes());
                    sent.add(producer.send(record));
                }
                for (Future<RecordMetadata> one : sent) {
                    one.get();
                }
            }
        }
    }

    private void readInGroup() {
        List<String> expected = new ArrayList<>();
        for (String codec : CODECS) {
            for (int number = 0; number < 3; number++) {
                expected.add(codec + number);
            }
        }
        try (KafkaConsumer<String, String> consumer = consumer(topic + "-group")) {
            consumer.subscribe(Collections.singleton(topic));
            List<String> found = new ArrayList<>();
            for (ConsumerRecord<String, String> record : poll(consumer, expected.size())) {
                must(new String(record.headers().lastHeader("codec").value()).equals(record.key()), "headers");
                found.add(record.value());
            }
            must(found.equals(expected), found.toString());
            consumer.commitSync(Collections.singletonMap(place, new OffsetAndMetadata(5, "a note")));
            must(consumer.endOffsets(Collections.singleton(place)).get(place) == 12, "the end");
            must(consumer.offsetsForTimes(Collections.singletonMap(place, 0L)).get(place).offset() == 0, "by time");
        }
        try (KafkaConsumer<String, String> consumer = consumer(topic + "-group")) {
            consumer.subscribe(Collections.singleton(topic));
            must(poll(consumer, 1).get(0).offset() == 5, "the next member begins at the committed offset");
            must(consumer.committed(place).metadata().equals("a note"), "the metadata");
        }
    }

    private void transactions() {
        try (KafkaProducer<String, String> first = producer("transactional.id", topic);
                KafkaProducer<String, String> second = producer("transactional.id", topic);
                KafkaProducer<String, String> late = producer(
                    "transactional.id", topic + "-late", "transaction.timeout.ms", "1000")) {
            first.initTransactions();
            first.beginTransaction();
            first.send(new ProducerRecord<>(topic, "committed"));
            first.sendOffsetsToTransaction(
                Collections.singletonMap(place, new OffsetAndMetadata(7)), topic + "-group");
            first.commitTransaction();
            first.beginTransaction();
            first.send(new ProducerRecord<>(topic, "aborted"));
            first.flush();
            first.abortTransaction();
            first.beginTransaction();
            first.send(new ProducerRecord<>(topic, "fenced"));
            first.flush();
            second.initTransactions();
            mustBeFenced(first);
            late.initTransactions();
            late.beginTransaction();
            late.send(new ProducerRecord<>(topic, "late"));
            late.flush();
            second.beginTransaction();
            second.send(new ProducerRecord<>(topic, "end"));
            second.commitTransaction();
            readCommitted(); // to the end, which is behind the transaction that times out
            mustBeFenced(late);
        }
    }

    private void readCommitted() {
        try (KafkaConsumer<String, String> consumer = consumer(topic + "-group")) {
            must(consumer.committed(place).offset() == 7, "the offset in the transaction");
            consumer.assign(Collections.singleton(place));
            consumer.seek(place, 12);
            List<String> found = new ArrayList<>();
            for (ConsumerRecord<String, String> record : poll(consumer, 2)) {
                found.add(record.value());
            }
            must(found.equals(Arrays.asList("committed", "end")), found.toString());
        }
    }

    private static void mustBeFenced(KafkaProducer<String, String> producer) {
        boolean fenced = false;
        try {
            producer.commitTransaction();
        } catch (ProducerFencedException error) {
            fenced = true;
        }
        must(fenced, "a producer is not fenced");
    }

    private static List<ConsumerRecord<String, String>> poll(KafkaConsumer<String, String> consumer, int count) {
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        long end = System.currentTimeMillis() + PATIENCE_MS;
        while (found.size() < count && System.currentTimeMillis() < end) {
            consumer.poll(100).forEach(found::add);
        }
        must(found.size() >= count, found.size() + " of " + count + " messages");
        return found;
    }

    private KafkaProducer<String, String> producer(String... options) {
        Properties properties = properties(options);
        properties.put("acks", "all");
        return new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer());
    }

    private KafkaConsumer<String, String> consumer(String group) {
        Properties properties = properties(
            "group.id", group, "auto.offset.reset", "earliest", "enable.auto.commit", "false",
            "isolation.level", "read_committed");
        return new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
    }

    private Properties properties(String... options) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        for (int at = 0; at < options.length; at += 2) {
            properties.put(options[at], options[at + 1]);
        }
        return properties;
    }

    private static void must(boolean holds, String what) {
        if (!holds) {
            throw new IllegalStateException(what);
        }
    }
}
