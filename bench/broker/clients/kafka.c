/* A client of anything that speaks Kafka's protocol, by librdkafka.
 *
 *   kafka produce ADDRESS TOPIC PARTITIONS COUNT SIZE random|event [KEY=VALUE...]
 *   kafka consume ADDRESS TOPIC PARTITIONS COUNT [KEY=VALUE...]
 *   kafka latency ADDRESS TOPIC COUNT SIZE [KEY=VALUE...]   each send waits for its acknowledgement
 *   kafka trip    ADDRESS TOPIC COUNT SIZE [KEY=VALUE...]   each send waits for a consumer to get it
 *
 * KEY=VALUE are librdkafka's own properties.
 */
#include "measure.h"

#include <librdkafka/rdkafka.h>

static long delivered, refused;

static void on_report(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
    (void)client, (void)opaque;
    if (message->err) {
        if (!refused++) fprintf(stderr, "delivery: %s\n", rd_kafka_err2str(message->err));
    } else {
        delivered++;
    }
}

static void set(rd_kafka_conf_t *conf, const char *key, const char *value) {
    char error[512];
    if (rd_kafka_conf_set(conf, key, value, error, sizeof error) != RD_KAFKA_CONF_OK)
        fail("%s=%s: %s", key, value, error);
}

static rd_kafka_t *connect_to(rd_kafka_type_t kind, const char *address, char **settings) {
    char error[512];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", address);
    if (kind == RD_KAFKA_PRODUCER) rd_kafka_conf_set_dr_msg_cb(conf, on_report);
    for (; *settings; settings++) {
        char *value = strchr(*settings, '=');
        if (!value) fail("%s is not KEY=VALUE", *settings);
        char *key = strndup(*settings, (size_t)(value - *settings));
        set(conf, key, value + 1);
        free(key);
    }
    rd_kafka_t *client = rd_kafka_new(kind, conf, error, sizeof error);
    if (!client) fail("%s", error);
    return client;
}

static rd_kafka_topic_t *open_topic(rd_kafka_t *client, const char *name) {
    const rd_kafka_metadata_t *metadata;
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client, name, NULL);
    if (!topic) fail("%s: %s", name, rd_kafka_err2str(rd_kafka_last_error()));
    rd_kafka_resp_err_t error = rd_kafka_metadata(client, 0, topic, &metadata, 30000);
    if (error) fail("%s: %s", name, rd_kafka_err2str(error));
    rd_kafka_metadata_destroy(metadata);
    return topic;
}

/* Let some reports come, and take them. Who waits in a poll is woken for every single one, by the
 * thread that sends: that takes it longer than the sending. */
static void rest(rd_kafka_t *client) {
    struct timespec pause = {0, 1000000};
    nanosleep(&pause, NULL);
    rd_kafka_poll(client, 0);
}

static void send_one(rd_kafka_t *client, rd_kafka_topic_t *topic, int partition, char *data,
                     size_t size) {
    while (rd_kafka_produce(topic, partition, RD_KAFKA_MSG_F_COPY, data, size, NULL, 0, NULL)) {
        rd_kafka_resp_err_t error = rd_kafka_last_error();
        if (error != RD_KAFKA_RESP_ERR__QUEUE_FULL) fail("%s", rd_kafka_err2str(error));
        rest(client);
    }
}

static void produce(char **arguments) {
    long partitions = number(arguments[2]), count = number(arguments[3]);
    size_t size = (size_t)number(arguments[4]);
    int events = !strcmp(arguments[5], "event");
    rd_kafka_t *client = connect_to(RD_KAFKA_PRODUCER, arguments[0], arguments + 6);
    rd_kafka_topic_t *topic = open_topic(client, arguments[1]);
    char *payload = room(events ? 4096 : 1, size);
    if (events)
        for (long i = 0; i < 4096; i++) event_payload(payload + (size_t)i * size, size, i);
    else
        random_payload(payload, size);
    double began = now();
    for (long i = 0; i < count; i++) {
        char *data = events ? payload + (size_t)(i & 4095) * size : payload;
        send_one(client, topic, (int)(i % partitions), data, size);
        if (!(i & 1023)) rd_kafka_poll(client, 0);
    }
    while (delivered + refused < count) rest(client);
    double seconds = now() - began;
    if (refused) fail("%ld of %ld messages were not taken", refused, count);
    answer_rate(count, seconds);
}

static void consume(char **arguments) {
    enum { MOST = 10000 };
    static rd_kafka_message_t *messages[MOST];
    long partitions = number(arguments[2]), count = number(arguments[3]);
    rd_kafka_t *client = connect_to(RD_KAFKA_CONSUMER, arguments[0], arguments + 4);
    rd_kafka_topic_t *topic = open_topic(client, arguments[1]);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(client);
    double began = now();
    for (long i = 0; i < partitions; i++)
        if (rd_kafka_consume_start_queue(topic, (int)i, RD_KAFKA_OFFSET_BEGINNING, queue))
            fail("start: %s", rd_kafka_err2str(rd_kafka_last_error()));
    long got = 0;
    double heard = began;
    while (got < count) {
        ssize_t found = rd_kafka_consume_batch_queue(queue, 1000, messages, MOST);
        if (found < 0) fail("consume: %s", rd_kafka_err2str(rd_kafka_last_error()));
        if (found) heard = now();
        if (now() - heard > 30) fail("%ld of %ld messages, and nothing for 30 s", got, count);
        for (ssize_t i = 0; i < found; i++) {
            if (messages[i]->err) fail("consume: %s", rd_kafka_message_errstr(messages[i]));
            got++;
            rd_kafka_message_destroy(messages[i]);
        }
    }
    answer_rate(got, now() - began);
}

static void latency(char **arguments) {
    long count = number(arguments[2]), warm = count / 10;
    size_t size = (size_t)number(arguments[3]);
    rd_kafka_t *client = connect_to(RD_KAFKA_PRODUCER, arguments[0], arguments + 4);
    rd_kafka_topic_t *topic = open_topic(client, arguments[1]);
    char *payload = room(1, size);
    random_payload(payload, size);
    double *times = room((size_t)count, sizeof *times), began = now();
    for (long i = -warm; i < count; i++) {
        double sent = now();
        long wanted = delivered + 1;
        if (!i) began = sent;
        send_one(client, topic, 0, payload, size);
        while (delivered < wanted && !refused) rd_kafka_poll(client, 1000);
        if (refused) fail("a message was not taken");
        if (i >= 0) times[i] = now() - sent;
    }
    answer_times(times, count, now() - began);
}

static void trip(char **arguments) {
    long count = number(arguments[2]), warm = count / 10;
    size_t size = (size_t)number(arguments[3]);
    char *wait[] = {"fetch.wait.max.ms=500", NULL};
    rd_kafka_t *producer = connect_to(RD_KAFKA_PRODUCER, arguments[0], arguments + 4);
    rd_kafka_t *consumer = connect_to(RD_KAFKA_CONSUMER, arguments[0], wait);
    rd_kafka_topic_t *to = open_topic(producer, arguments[1]);
    rd_kafka_topic_t *from = open_topic(consumer, arguments[1]);
    if (rd_kafka_consume_start(from, 0, RD_KAFKA_OFFSET_BEGINNING))
        fail("start: %s", rd_kafka_err2str(rd_kafka_last_error()));
    char *payload = room(1, size);
    random_payload(payload, size);
    double *times = room((size_t)count, sizeof *times), began = now();
    for (long i = -warm; i < count; i++) {
        double sent = now();
        if (!i) began = sent;
        send_one(producer, to, 0, payload, size);
        rd_kafka_message_t *message = NULL;
        while (!message && now() - sent < 30) message = rd_kafka_consume(from, 0, 1000);
        if (!message) fail("message %ld did not come within 30 s", i);
        if (message->err) fail("consume: %s", rd_kafka_message_errstr(message));
        if (i >= 0) times[i] = now() - sent;
        rd_kafka_message_destroy(message);
        rd_kafka_poll(producer, 0);
    }
    answer_times(times, count, now() - began);
}

int main(int count, char **arguments) {
    if (count > 7 && !strcmp(arguments[1], "produce")) produce(arguments + 2);
    else if (count > 5 && !strcmp(arguments[1], "consume")) consume(arguments + 2);
    else if (count > 5 && !strcmp(arguments[1], "latency")) latency(arguments + 2);
    else if (count > 5 && !strcmp(arguments[1], "trip")) trip(arguments + 2);
    else fail("usage: see the head of kafka.c");
    fflush(stdout);
    _Exit(0); /* taking the client apart takes seconds and measures nothing */
}
