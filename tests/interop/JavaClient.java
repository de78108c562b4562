import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Objects;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListConfigResourcesOptions;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.NoOffsetForPartitionException;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidReplicaAssignmentException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.errors.UnknownTopicIdException;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Java's own client on the broker under test.
 *
 * JavaClient BOOTSTRAP SCENARIO           states what must hold, or ends with a stack trace
 * JavaClient BOOTSTRAP send TOPIC CODEC   messages from stdin, one JSON object a line
 * JavaClient BOOTSTRAP read TOPIC COUNT   messages to stdout, the same way
 * JavaClient BOOTSTRAP damaged TOPIC       read 50 messages, of which the third ten are damaged
 *
 * Rules: everything is the client's default unless the scenario is about it; topic and group names
 * are the scenario's own; nothing waits longer than PATIENCE.
 */
public final class JavaClient {
    private static final Duration PATIENCE = Duration.ofSeconds(30);
    private static final Duration MOMENT = Duration.ofMillis(100);
    private static final long EARLIER = 1_600_000_000_000L;
    private static final ObjectMapper JSON = new ObjectMapper();

    private final String bootstrap;

    private JavaClient(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] arguments) throws Exception {
        JavaClient client = new JavaClient(arguments[0]);
        switch (arguments[1]) {
            case "send" -> client.send(arguments[2], arguments[3]);
            case "read" -> client.read(arguments[2], Integer.parseInt(arguments[3]));
            case "acknowledgements" -> client.acknowledgements();
            case "eager-group" -> client.group("org.apache.kafka.clients.consumer.RangeAssignor");
            case "cooperative-group" ->
                client.group("org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
            case "static-members" -> client.staticMembers();
            case "fenced-member" -> client.fencedMember();
            case "consumer-protocol" -> client.consumerProtocol();
            case "changing-over" -> client.changingOver();
            case "damaged" -> client.damaged(arguments[2]);
            case "positions" -> client.positions();
            case "topics" -> client.topics();
            case "cluster" -> client.cluster();
            case "configs" -> client.configs();
            case "groups" -> client.groups();
            case "records" -> client.records();
            case "transactions" -> client.transactions();
            case "refusals" -> client.refusals();
            default -> throw new IllegalArgumentException("no scenario " + arguments[1]);
        }
    }

    // ---- messages in and out -------------------------------------------------------------------

    private void send(String topic, String codec) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (KafkaProducer<byte[], byte[]> producer = producer("compression.type", codec)) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                JsonNode m = JSON.readTree(line);
                ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(
                    topic, 0, m.get("timestamp").asLong(), bytes(m.get("key")), bytes(m.get("value")));
                for (JsonNode header : m.get("headers")) {
                    record.headers().add(header.get(0).asText(), bytes(header.get(1)));
                }
                sent.add(producer.send(record));
            }
            for (Future<RecordMetadata> one : sent) {
                one.get();
            }
        }
    }

    private void read(String topic, int count) throws Exception {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(null)) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            for (ConsumerRecord<byte[], byte[]> record : take(consumer, count)) {
                ObjectNode m = JSON.createObjectNode();
                m.put("timestamp", record.timestamp());
                m.put("key", text(record.key()));
                m.put("value", text(record.value()));
                ArrayNode headers = m.putArray("headers");
                for (Header header : record.headers()) {
                    headers.addArray().add(header.key()).add(text(header.value()));
                }
                System.out.println(m);
            }
        }
    }

    private static byte[] bytes(JsonNode node) {
        return node.isNull() ? null : Base64.getDecoder().decode(node.asText());
    }

    private static String text(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }

    // ---- producing -----------------------------------------------------------------------------

    private void acknowledgements() throws Exception {
        String topic = newTopic("acknowledgements", 1);
        long next = 0;
        for (String acks : List.of("all", "1", "0")) {
            try (KafkaProducer<byte[], byte[]> producer = producer(
                    "acks", acks, "enable.idempotence", String.valueOf(acks.equals("all")),
                    "linger.ms", "0")) {
                for (int i = 0; i < 200; i++) {
                    RecordMetadata at = producer.send(new ProducerRecord<>(topic, utf8("" + i))).get();
                    check(acks.equals("0") ? -1 : next, at.offset(), "offset at acks=" + acks);
                    next++;
                }
            }
        }
        try (Admin admin = admin()) {
            // acks=0 is answered by the client itself: what it sent may still be on its way
            TopicPartition p = new TopicPartition(topic, 0);
            until(() -> offset(admin, p, OffsetSpec.latest()) == 600, "all of it is there");
        }
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            byte[] big = new byte[1_100_000];
            mustFail(RecordTooLargeException.class, () ->
                producer.send(new ProducerRecord<>(topic, big)).get());
        }
        try (KafkaProducer<byte[], byte[]> producer = producer("max.request.size", "5000000")) {
            byte[] big = new byte[1_100_000];
            mustFail(RecordTooLargeException.class, () ->
                producer.send(new ProducerRecord<>(topic, big)).get());
            check(next, producer.send(new ProducerRecord<>(topic, utf8("small"))).get().offset(),
                "the producer goes on after a message that was too large");
        }
    }

    // ---- groups --------------------------------------------------------------------------------

    private void group(String assignor) throws Exception {
        String name = assignor.substring(assignor.lastIndexOf('.') + 1);
        String topic = newTopic(name, 4);
        fill(topic, 4, 25);
        Set<String> seen = new HashSet<>();
        List<TopicPartition> lost = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> one = member(name, assignor)) {
            one.subscribe(List.of(topic), new ConsumerRebalanceListener() {
                @Override public void onPartitionsRevoked(Collection<TopicPartition> gone) { }
                @Override public void onPartitionsAssigned(Collection<TopicPartition> come) { }
                @Override public void onPartitionsLost(Collection<TopicPartition> gone) {
                    lost.addAll(gone);
                }
            });
            until(() -> poll(one, seen) && seen.size() == 100, "one member reads all");
            check(4, one.assignment().size(), "partitions of the only member");
            one.commitSync();
            try (KafkaConsumer<byte[], byte[]> two = member(name, assignor)) {
                two.subscribe(List.of(topic));
                until(() -> poll(one, seen) & poll(two, seen)
                    && one.assignment().size() == 2 && two.assignment().size() == 2, "2 and 2");
                fill(topic, 4, 5);
                until(() -> poll(one, seen) & poll(two, seen) && seen.size() == 120, "both read");
                one.commitSync();
                two.commitSync();
            }
            until(() -> poll(one, seen) && one.assignment().size() == 4, "one takes over");
            for (TopicPartition p : one.assignment()) {
                check(30L, one.position(p), "position of " + p);
            }
        }
        check(List.of(), lost, "partitions lost without being revoked");
    }

    /** The protocol of KIP-848: the broker assigns. */
    private void consumerProtocol() throws Exception {
        String topic = newTopic("assigned", 4);
        fill(topic, 4, 5);
        Set<String> seen = new HashSet<>();
        try (KafkaConsumer<byte[], byte[]> one = assigned("assigned", "client.id", "me")) {
            one.subscribe(List.of(topic));
            until(() -> poll(one, seen) && seen.size() == 20, "one member reads all");
            one.commitSync();
            KafkaConsumer<byte[], byte[]> two = assigned("assigned", "group.instance.id", "two");
            try (Admin admin = admin()) {
                two.subscribe(List.of(topic));
                until(() -> poll(one, seen) & poll(two, seen)
                    && one.assignment().size() == 2 && two.assignment().size() == 2, "2 and 2");
                fill(topic, 4, 5);
                until(() -> poll(one, seen) & poll(two, seen) && seen.size() == 40, "both read");
                one.commitSync();
                two.commitSync();
                ConsumerGroupDescription group = admin.describeConsumerGroups(
                    List.of("java-assigned")).all().get().get("java-assigned");
                check("Consumer Stable uniform 2", String.join(" ", group.type().toString(),
                    group.groupState().toString(), group.partitionAssignor(),
                    "" + group.members().size()), "the description");
                check(true, admin.listGroups().all().get().stream().anyMatch(
                    listed -> listed.groupId().equals("java-assigned")
                        && listed.type().get().toString().equals("Consumer")), "listed by its type");
                mustFail(GroupNotEmptyException.class, () ->
                    admin.deleteConsumerGroups(List.of("java-assigned")).all().get());
                Set<TopicPartition> before = new HashSet<>(two.assignment());
                two.close();
                try (KafkaConsumer<byte[], byte[]> again =
                        assigned("assigned", "group.instance.id", "two")) {
                    again.subscribe(List.of(topic));
                    until(() -> poll(one, seen) & poll(again, seen)
                        && !again.assignment().isEmpty(), "the static member is back");
                    check(before, again.assignment(), "the partitions that it had");
                    for (TopicPartition p : again.assignment()) {
                        check(10L, again.position(p), "position of " + p);
                    }
                }
            }
        }
        newTopic("assigned-too", 1);
        Set<String> again = new HashSet<>();
        try (KafkaConsumer<byte[], byte[]> all =
                assigned("expression", "group.remote.assignor", "range")) {
            all.subscribe(new SubscriptionPattern("java-assigned.*"));
            until(() -> poll(all, again) && again.size() == 40, "an expression finds the topic");
            check(5, all.assignment().size(), "partitions of both topics");
        }
    }

    /** A group that changes to the protocol of KIP-848 and back, while its members read. */
    private void changingOver() throws Exception {
        String topic = newTopic("over", 4);
        fill(topic, 4, 5);
        Set<String> seen = new HashSet<>();
        String cooperative = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor";
        try (KafkaConsumer<byte[], byte[]> old = member("over", cooperative)) {
            old.subscribe(List.of(topic));
            until(() -> poll(old, seen) && seen.size() == 20, "the classic member reads all");
            old.commitSync();
            try (KafkaConsumer<byte[], byte[]> next = assigned("over")) {
                next.subscribe(List.of(topic));
                until(() -> poll(old, seen) & poll(next, seen)
                    && old.assignment().size() == 2 && next.assignment().size() == 2, "2 and 2");
                fill(topic, 4, 5);
                until(() -> poll(old, seen) & poll(next, seen) && seen.size() == 40, "both read");
                old.commitSync();
                next.commitSync();
            }
            until(() -> poll(old, seen) && old.assignment().size() == 4, "the group changed back");
            for (TopicPartition p : old.assignment()) {
                check(10L, old.position(p), "position of " + p);
            }
        }
    }

    private void staticMembers() throws Exception {
        String topic = newTopic("static", 2);
        Set<String> seen = new HashSet<>();
        try (KafkaConsumer<byte[], byte[]> one = member("static", null, "group.instance.id", "one")) {
            one.subscribe(List.of(topic));
            until(() -> poll(one, seen) && one.assignment().size() == 2, "one is alone");
            KafkaConsumer<byte[], byte[]> two = member("static", null, "group.instance.id", "two");
            two.subscribe(List.of(topic));
            until(() -> poll(one, seen) & poll(two, seen)
                && one.assignment().size() == 1 && two.assignment().size() == 1, "1 and 1");
            Set<TopicPartition> before = new HashSet<>(two.assignment());
            two.close();
            KafkaConsumer<byte[], byte[]> again =
                member("static", null, "group.instance.id", "two");
            again.subscribe(List.of(topic));
            until(() -> poll(one, seen) & poll(again, seen) && !again.assignment().isEmpty(),
                "two comes back");
            check(before, again.assignment(), "what it had");
            check(1, one.assignment().size(), "what the other keeps");
            again.close();
        }
    }

    private void fencedMember() throws Exception {
        String topic = newTopic("fenced", 1);
        fill(topic, 1, 3);
        Set<String> seen = new HashSet<>();
        try (KafkaConsumer<byte[], byte[]> slow = member("fenced", null,
                "max.poll.interval.ms", "1000")) {
            slow.subscribe(List.of(topic));
            until(() -> poll(slow, seen) && seen.size() == 3, "it reads");
            Thread.sleep(2500);
            mustFail(CommitFailedException.class, slow::commitSync);
            seen.clear();
            until(() -> poll(slow, seen) && seen.size() == 3, "it joins again, and reads again");
        }
    }

    // ---- places in the log ---------------------------------------------------------------------

    /** Every poll in front of the damage throws, and none moves on; a seek does. */
    private void damaged(String topic) {
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(null)) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, 0);
            check(20, take(consumer, 20).size(), "what is before it");
            for (int n = 0; n < 3; n++) {
                until(() -> throwsOfDamage(consumer), "a poll throws");
                check(20L, consumer.position(partition), "the position");
            }
            consumer.seek(partition, 30);
            check(20, take(consumer, 20).size(), "what is behind it");
        }
    }

    private static boolean throwsOfDamage(KafkaConsumer<byte[], byte[]> consumer) {
        try {
            check(0, consumer.poll(MOMENT).count(), "messages of a damaged batch");
            return false;
        } catch (KafkaException error) {
            return true;
        }
    }

    private void positions() throws Exception {
        String topic = newTopic("positions", 1);
        fill(topic, 1, 10);
        TopicPartition p = new TopicPartition(topic, 0);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("positions")) {
            consumer.assign(List.of(p));
            check(Map.of(p, 0L), consumer.beginningOffsets(List.of(p)), "first offset");
            check(Map.of(p, 10L), consumer.endOffsets(List.of(p)), "next offset");
            consumer.seek(p, 4);
            check("0-4", new String(take(consumer, 1).get(0).value()), "what lies at 4");
            Map<TopicPartition, OffsetAndTimestamp> found =
                consumer.offsetsForTimes(Map.of(p, EARLIER + 6));
            check(6L, found.get(p).offset(), "first offset of a time");
            check(EARLIER + 6, found.get(p).timestamp(), "its time");
            check(null, consumer.offsetsForTimes(Map.of(p, EARLIER + 99)).get(p), "after the end");
            check(null, consumer.committed(Set.of(p)).get(p), "nothing is committed");
            consumer.commitSync(Map.of(p, new OffsetAndMetadata(7, "note")));
            check(new OffsetAndMetadata(7, "note"), consumer.committed(Set.of(p)).get(p), "commit");
            consumer.seekToEnd(List.of(p));
            check(10L, consumer.position(p), "the end");
            check(List.of(0), consumer.partitionsFor(topic).stream().map(i -> i.partition()).toList(),
                "partitions");
        }
        try (KafkaConsumer<byte[], byte[]> strict =
                consumer("strict", "auto.offset.reset", "none")) {
            strict.assign(List.of(p));
            mustFail(NoOffsetForPartitionException.class, () -> strict.poll(PATIENCE));
            strict.seek(p, 1000);
            mustFail(OffsetOutOfRangeException.class, () -> {
                while (true) {
                    strict.poll(PATIENCE);
                }
            });
        }
        try (KafkaConsumer<byte[], byte[]> committed =
                consumer(null, "isolation.level", "read_committed")) {
            committed.assign(List.of(p));
            committed.seekToBeginning(List.of(p));
            check(10, take(committed, 10).size(), "messages at read_committed");
        }
    }

    // ---- administration ------------------------------------------------------------------------

    private void topics() throws Exception {
        try (Admin admin = admin()) {
            NewTopic asked = new NewTopic("java-topics", 3, (short) 1)
                .configs(Map.of("retention.ms", "5000"));
            var made = admin.createTopics(List.of(asked));
            made.all().get();
            check(3, made.numPartitions("java-topics").get(), "partitions in the answer");
            check("5000", made.config("java-topics").get().get("retention.ms").value(), "config");
            until(() -> names(admin).contains("java-topics"), "the topic is listed");
            TopicDescription described = describe(admin, "java-topics");
            check(3, described.partitions().size(), "partitions");
            check(1, described.partitions().get(0).isr().size(), "replicas in sync");
            mustFail(TopicExistsException.class, () -> admin.createTopics(List.of(asked)).all().get());
            mustFail(InvalidTopicException.class, () ->
                admin.createTopics(List.of(new NewTopic("no/slash", 1, (short) 1))).all().get());
            mustFail(UnknownTopicOrPartitionException.class, () -> describe(admin, "nobody"));
            admin.createPartitions(Map.of("java-topics", NewPartitions.increaseTo(5))).all().get();
            until(() -> describe(admin, "java-topics").partitions().size() == 5, "it grows");
            var pages = new DescribeTopicsOptions().partitionSizeLimitPerResponse(2);
            check(5, admin.describeTopics(List.of("java-topics"), pages).allTopicNames().get()
                .get("java-topics").partitions().size(), "partitions in pages of two");
            check(true, admin.listPartitionReassignments().reassignments().get().isEmpty(), "moves");
            mustFail(InvalidReplicaAssignmentException.class, () ->
                admin.alterPartitionReassignments(Map.of(new TopicPartition("java-topics", 0),
                    Optional.of(new NewPartitionReassignment(List.of(9))))).all().get());
            check(true, admin.listConfigResources().all().get().contains(
                new ConfigResource(ConfigResource.Type.TOPIC, "java-topics")), "its resource");
            TopicPartition first = new TopicPartition("java-topics", 0);
            check(0L, offset(admin, first, OffsetSpec.earliestLocal()), "the earliest local offset");
            check(-1L, offset(admin, first, OffsetSpec.latestTiered()), "nothing is tiered");
            Uuid id = made.topicId("java-topics").get();
            check(id, describe(admin, "java-topics").topicId(), "the id in the description");
            check("java-topics", describe(admin, id).name(), "the topic with this id");
            admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all().get();
            until(() -> !names(admin).contains("java-topics"), "the topic is gone");
            mustFail(UnknownTopicIdException.class, () -> describe(admin, id));
            var again = admin.createTopics(List.of(asked));
            check(false, id.equals(again.topicId("java-topics").get()), "the same id again");
            admin.deleteTopics(List.of("java-topics")).all().get();
        }
    }

    private void cluster() throws Exception {
        try (Admin admin = admin()) {
            check(1, admin.describeCluster().nodes().get().size(), "nodes");
            check(22, admin.describeCluster().clusterId().get().length(), "cluster id");
            check(true, admin.describeFeatures().featureMetadata().get() != null, "features");
            check(0, admin.listConfigResources(Set.of(ConfigResource.Type.CLIENT_METRICS),
                new ListConfigResourcesOptions()).all().get().size(), "metrics of clients");
        }
    }

    private void configs() throws Exception {
        String topic = newTopic("configs", 1);
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        try (Admin admin = admin()) {
            check("604800000", config(admin, resource, "retention.ms").value(), "default");
            check(true, config(admin, resource, "retention.ms").isDefault(), "said to be default");
            alter(admin, resource, AlterConfigOp.OpType.SET, "retention.ms", "5000");
            until(() -> config(admin, resource, "retention.ms").value().equals("5000"), "set");
            check(ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG,
                config(admin, resource, "retention.ms").source(), "where it comes from");
            alter(admin, resource, AlterConfigOp.OpType.DELETE, "retention.ms", null);
            until(() -> config(admin, resource, "retention.ms").isDefault(), "reset");
            mustFail(InvalidConfigurationException.class, () ->
                alter(admin, resource, AlterConfigOp.OpType.SET, "no.such.config", "1"));
            mustFail(UnknownTopicOrPartitionException.class, () -> config(
                admin, new ConfigResource(ConfigResource.Type.TOPIC, "nobody"), "retention.ms"));
            String node = admin.describeCluster().nodes().get().iterator().next().idString();
            Config own = admin.describeConfigs(
                List.of(new ConfigResource(ConfigResource.Type.BROKER, node))).all().get()
                .values().iterator().next();
            check(false, own.entries().isEmpty(), "a broker without configs");
        }
    }

    private void groups() throws Exception {
        String topic = newTopic("groups", 2);
        fill(topic, 2, 5);
        TopicPartition zero = new TopicPartition(topic, 0);
        TopicPartition one = new TopicPartition(topic, 1);
        Set<String> seen = new HashSet<>();
        try (Admin admin = admin()) {
            try (KafkaConsumer<byte[], byte[]> member = member("groups", null, "client.id", "me")) {
                member.subscribe(List.of(topic));
                until(() -> poll(member, seen) && seen.size() == 10, "it reads");
                member.commitSync();
                ConsumerGroupDescription group =
                    admin.describeConsumerGroups(List.of("java-groups")).all().get().get("java-groups");
                check("Stable", group.groupState().toString(), "state");
                check("me", group.members().iterator().next().clientId(), "client");
                check(Set.of(zero, one),
                    group.members().iterator().next().assignment().topicPartitions(), "assignment");
                mustFail(GroupNotEmptyException.class, () ->
                    admin.deleteConsumerGroups(List.of("java-groups")).all().get());
                check("Stable", classicState(admin), "state of a classic group");
                admin.removeMembersFromConsumerGroup(
                    "java-groups", new RemoveMembersFromConsumerGroupOptions()).all().get();
                check("Empty", classicState(admin), "state after all members were removed");
            }
            List<String> listed = new ArrayList<>();
            for (GroupListing group : admin.listGroups().all().get()) {
                listed.add(group.groupId());
            }
            check(true, listed.contains("java-groups"), "listed");
            check(true, listed(admin, GroupType.CLASSIC).contains("java-groups"), "by its type");
            check(false, listed(admin, GroupType.CONSUMER).contains("java-groups"), "by another");
            Map<TopicPartition, OffsetAndMetadata> offsets = offsets(admin);
            check(5L, offsets.get(zero).offset(), "committed");
            admin.alterConsumerGroupOffsets(
                "java-groups", Map.of(zero, new OffsetAndMetadata(2))).all().get();
            check(2L, offsets(admin).get(zero).offset(), "altered");
            admin.deleteConsumerGroupOffsets("java-groups", Set.of(one)).all().get();
            check(Set.of(zero), offsets(admin).keySet(), "one is deleted");
            admin.deleteConsumerGroups(List.of("java-groups")).all().get();
            for (GroupListing group : admin.listGroups().all().get()) {
                check(false, group.groupId().equals("java-groups"), "deleted, and still listed");
            }
        }
    }

    private static String classicState(Admin admin) throws Exception {
        return admin.describeClassicGroups(List.of("java-groups")).all().get()
            .get("java-groups").state().toString();
    }

    private static Set<String> listed(Admin admin, GroupType type) throws Exception {
        return admin.listGroups(new ListGroupsOptions().withTypes(Set.of(type))).all().get()
            .stream().map(GroupListing::groupId).collect(Collectors.toSet());
    }

    private Map<TopicPartition, OffsetAndMetadata> offsets(Admin admin) throws Exception {
        return admin.listConsumerGroupOffsets("java-groups").partitionsToOffsetAndMetadata().get();
    }

    private void records() throws Exception {
        String topic = newTopic("records", 1);
        fill(topic, 1, 10);
        TopicPartition p = new TopicPartition(topic, 0);
        try (Admin admin = admin()) {
            check(0L, offset(admin, p, OffsetSpec.earliest()), "earliest");
            check(10L, offset(admin, p, OffsetSpec.latest()), "latest");
            check(9L, offset(admin, p, OffsetSpec.maxTimestamp()), "largest time");
            check(5L, offset(admin, p, OffsetSpec.forTimestamp(EARLIER + 5)), "by time");
            check(4L, admin.deleteRecords(Map.of(p, RecordsToDelete.beforeOffset(4)))
                .lowWatermarks().get(p).get().lowWatermark(), "first offset after deletion");
            check(4L, offset(admin, p, OffsetSpec.earliest()), "earliest after deletion");
            int node = admin.describeCluster().nodes().get().iterator().next().id();
            long size = admin.describeLogDirs(List.of(node)).allDescriptions().get().get(node)
                .values().iterator().next().replicaInfos().get(p).size();
            check(true, size > 100, "bytes of the log: " + size);
            var replica = new TopicPartitionReplica(topic, 0, node);
            check(true, admin.describeReplicaLogDirs(List.of(replica)).all().get().get(replica)
                .getCurrentReplicaLogDir() != null, "the folder of the log");
        }
    }

    private static long offset(Admin admin, TopicPartition p, OffsetSpec spec) {
        try {
            return admin.listOffsets(Map.of(p, spec)).partitionResult(p).get().offset();
        } catch (InterruptedException | ExecutionException error) {
            throw new AssertionError(error);
        }
    }

    // ---- transactions --------------------------------------------------------------------------

    private void transactions() throws Exception {
        String topic = newTopic("transactions", 2);
        KafkaProducer<byte[], byte[]> first = producer("transactional.id", "java-transactions");
        first.initTransactions();
        ConsumerGroupMetadata group;
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("offsets")) {
            group = consumer.groupMetadata();
        }
        for (String value : List.of("committed", "aborted", "later")) {
            first.beginTransaction();
            for (int partition = 0; partition < 2; partition++) {
                byte[] data = value.getBytes(StandardCharsets.UTF_8);
                first.send(new ProducerRecord<>(topic, partition, null, data)).get();
            }
            first.sendOffsetsToTransaction(
                Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(value.length())),
                group);
            if (value.equals("aborted")) {
                first.abortTransaction();
            } else {
                first.commitTransaction();
            }
        }
        first.beginTransaction();
        first.send(new ProducerRecord<>(topic, 0, null, new byte[1])).get();
        List<TopicPartition> both = List.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1));
        check(List.of("committed", "committed", "later", "later"), committed(both), "committed");
        try (Admin admin = admin()) {
            var offsets = admin.listConsumerGroupOffsets("java-offsets")
                .partitionsToOffsetAndMetadata().get();
            check(5L, offsets.get(both.get(0)).offset(), "the offset of the last commit");
            var state = describeTransaction(admin, "java-transactions");
            check("Ongoing", state.state().toString(), "the state");
            check(Set.of(both.get(0)), state.topicPartitions(), "its partitions");
            var listed = admin.listTransactions().all().get().stream()
                .filter(one -> one.transactionalId().equals("java-transactions")).count();
            check(1L, listed, "listed");
            var active = admin.describeProducers(List.of(both.get(0)))
                .partitionResult(both.get(0)).get().activeProducers();
            check(1L, active.stream().filter(
                one -> one.currentTransactionStartOffset().isPresent()).count(), "open");
        }
        try (KafkaProducer<byte[], byte[]> second =
                producer("transactional.id", "java-transactions")) {
            second.initTransactions();
            mustFail(ProducerFencedException.class, first::commitTransaction);
            second.beginTransaction();
            second.send(new ProducerRecord<>(topic, 1, null, "end".getBytes(StandardCharsets.UTF_8)));
            second.commitTransaction();
        }
        first.close(Duration.ZERO);
        KafkaProducer<byte[], byte[]> late =
            producer("transactional.id", "java-late", "transaction.timeout.ms", "1000");
        late.initTransactions();
        late.beginTransaction();
        late.send(new ProducerRecord<>(topic, 0, null, new byte[1])).get();
        try (Admin admin = admin()) {
            until(() -> state(admin, "java-late").equals("CompleteAbort"), "it times out");
        }
        // fenced; Apache Kafka with version 2 of transactions calls its state invalid
        mustFail(KafkaException.class, late::commitTransaction);
        late.close(Duration.ZERO);
        try (Admin admin = admin()) {
            for (String way : List.of("java-fenced", "java-terminated")) {
                KafkaProducer<byte[], byte[]> open = producer("transactional.id", way);
                open.initTransactions();
                open.beginTransaction();
                open.send(new ProducerRecord<>(topic, 0, null, new byte[1])).get();
                if (way.equals("java-fenced")) {
                    admin.fenceProducers(List.of(way)).all().get();
                } else {
                    admin.forceTerminateTransaction(way).result().get();
                }
                mustFail(ProducerFencedException.class, open::commitTransaction);
                open.close(Duration.ZERO);
            }
        }
        check(List.of("committed", "committed", "end", "later", "later"), committed(both), "at last");
    }

    private List<String> committed(List<TopicPartition> partitions) {
        List<String> found = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer =
                consumer(null, "isolation.level", "read_committed")) {
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            while (!partitions.stream().allMatch(p -> consumer.position(p) >= ends.get(p))) {
                consumer.poll(MOMENT).forEach(
                    one -> found.add(new String(one.value(), StandardCharsets.UTF_8)));
            }
        }
        found.sort(null);
        return found;
    }

    // ---- what is not served --------------------------------------------------------------------

    private void refusals() throws Exception {
        long began = System.nanoTime();
        try (Admin admin = admin()) {
            mustFail(UnsupportedVersionException.class, () ->
                admin.describeClientQuotas(
                    org.apache.kafka.common.quota.ClientQuotaFilter.all()).entities().get());
        }
        try (KafkaShareConsumer<byte[], byte[]> sharing = new KafkaShareConsumer<>(
                properties("group.id", "java-share"),
                new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            sharing.subscribe(List.of("java-refusals"));
            mustFail(UnsupportedVersionException.class, () ->
                until(() -> sharing.poll(MOMENT) == null, "share groups are refused"));
        }
        long seconds = Duration.ofNanos(System.nanoTime() - began).toSeconds();
        check(true, seconds < 20, "refusals took " + seconds + " s");
    }

    // ---- the clients ---------------------------------------------------------------------------

    private Properties properties(String... more) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        for (int i = 0; i < more.length; i += 2) {
            properties.put(more[i], more[i + 1]);
        }
        return properties;
    }

    private Admin admin() {
        return Admin.create(properties());
    }

    private KafkaProducer<byte[], byte[]> producer(String... more) {
        return new KafkaProducer<>(
            properties(more), new ByteArraySerializer(), new ByteArraySerializer());
    }

    private KafkaConsumer<byte[], byte[]> consumer(String group, String... more) {
        Properties properties = properties(more);
        properties.put("enable.auto.commit", "false");
        if (group != null) {
            properties.put("group.id", "java-" + group);
        }
        return new KafkaConsumer<>(
            properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private KafkaConsumer<byte[], byte[]> member(String group, String assignor, String... more) {
        List<String> all = new ArrayList<>(Arrays.asList(more));
        all.addAll(List.of("auto.offset.reset", "earliest", "heartbeat.interval.ms", "200"));
        if (assignor != null) {
            all.addAll(List.of("partition.assignment.strategy", assignor));
        }
        return consumer(group, all.toArray(String[]::new));
    }

    private KafkaConsumer<byte[], byte[]> assigned(String group, String... more) {
        List<String> all = new ArrayList<>(Arrays.asList(more));
        all.addAll(List.of("auto.offset.reset", "earliest", "group.protocol", "consumer"));
        return consumer(group, all.toArray(String[]::new));
    }

    private String newTopic(String name, int partitions) throws Exception {
        String topic = "java-" + name;
        try (Admin admin = admin()) {
            // The messages are years old, and Kafka's retention goes by their time.
            Map<String, String> config =
                name.equals("configs") ? Map.of() : Map.of("retention.ms", "-1");
            NewTopic asked = new NewTopic(topic, partitions, (short) 1).configs(config);
            admin.createTopics(List.of(asked)).all().get();
            until(() -> names(admin).contains(topic), topic + " is listed");
        }
        return topic;
    }

    /** Messages "PARTITION-NUMBER", a millisecond apart, numbered on from what is there. */
    private void fill(String topic, int partitions, int each) throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            for (int p = 0; p < partitions; p++) {
                long first = 0;
                try (Admin admin = admin()) {
                    first = offset(admin, new TopicPartition(topic, p), OffsetSpec.latest());
                }
                for (long n = first; n < first + each; n++) {
                    producer.send(new ProducerRecord<>(
                        topic, p, EARLIER + n, null, utf8(p + "-" + n)));
                }
            }
        }
    }

    private static boolean poll(KafkaConsumer<byte[], byte[]> consumer, Set<String> seen) {
        for (ConsumerRecord<byte[], byte[]> record : consumer.poll(MOMENT)) {
            check(true, seen.add(new String(record.value())), "read once: " + record);
        }
        return true;
    }

    private static List<ConsumerRecord<byte[], byte[]>> take(
            KafkaConsumer<byte[], byte[]> consumer, int count) {
        List<ConsumerRecord<byte[], byte[]>> found = new ArrayList<>();
        until(() -> {
            ConsumerRecords<byte[], byte[]> polled = consumer.poll(MOMENT);
            polled.forEach(found::add);
            return found.size() >= count;
        }, count + " messages come");
        return found.subList(0, count);
    }

    private static Set<String> names(Admin admin) {
        try {
            return admin.listTopics().names().get();
        } catch (InterruptedException | ExecutionException error) {
            throw new AssertionError(error);
        }
    }

    private static TransactionDescription describeTransaction(Admin admin, String id)
            throws Exception {
        return admin.describeTransactions(List.of(id)).description(id).get();
    }

    private static String state(Admin admin, String transactionalId) {
        try {
            return describeTransaction(admin, transactionalId).state().toString();
        } catch (Exception error) {
            throw new AssertionError(error);
        }
    }

    private static TopicDescription describe(Admin admin, Uuid id) throws Exception {
        return admin.describeTopics(TopicCollection.ofTopicIds(List.of(id)))
            .allTopicIds().get().get(id);
    }

    private static TopicDescription describe(Admin admin, String topic) {
        try {
            return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
        } catch (InterruptedException | ExecutionException error) {
            throw new AssertionError(error.getCause());
        }
    }

    private static ConfigEntry config(Admin admin, ConfigResource resource, String name) {
        try {
            return admin.describeConfigs(List.of(resource)).all().get().get(resource).get(name);
        } catch (InterruptedException | ExecutionException error) {
            throw new AssertionError(error.getCause());
        }
    }

    private static void alter(Admin admin, ConfigResource resource, AlterConfigOp.OpType type,
            String name, String value) throws Exception {
        AlterConfigOp change = new AlterConfigOp(new ConfigEntry(name, value), type);
        admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all().get();
    }

    // ---- stating -------------------------------------------------------------------------------

    private interface Action {
        void run() throws Exception;
    }

    private static void mustFail(Class<? extends Exception> expected, Action action)
            throws Exception {
        Throwable found;
        try {
            action.run();
            throw new AssertionError("no " + expected.getSimpleName());
        } catch (ExecutionException | AssertionError error) {
            found = error.getCause() == null ? error : error.getCause();
        } catch (Exception error) {
            found = error;
        }
        if (found instanceof TimeoutException || !expected.isInstance(found)) {
            throw new AssertionError("not a " + expected.getSimpleName(), found);
        }
    }

    private static void check(Object expected, Object found, String what) {
        if (!Objects.equals(expected, found)) {
            throw new AssertionError(what + ": expected " + expected + ", found " + found);
        }
    }

    private static void until(BooleanSupplier holds, String what) {
        long end = System.nanoTime() + PATIENCE.toNanos();
        while (!holds.getAsBoolean()) {
            if (System.nanoTime() > end) {
                throw new AssertionError("it never came to be that " + what);
            }
        }
    }

    private static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
