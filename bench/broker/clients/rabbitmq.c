/* A client of RabbitMQ, by librabbitmq.
 *
 *   rabbitmq produce HOST PORT QUEUE COUNT SIZE    persistent, no confirms, durable classic queue
 *   rabbitmq consume HOST PORT QUEUE COUNT         acknowledged automatically
 *
 * A production ends when the server has answered a question that was asked after the last message
 * on the same channel: it handles a channel's commands in order.
 */
#include "measure.h"

#include <amqp.h>
#include <amqp_tcp_socket.h>

static amqp_connection_state_t server;

static void check(amqp_rpc_reply_t reply, const char *what) {
    if (reply.reply_type != AMQP_RESPONSE_NORMAL) fail("%s was refused", what);
}

static void connect_to(const char *host, int port) {
    server = amqp_new_connection();
    amqp_socket_t *socket = amqp_tcp_socket_new(server);
    if (!socket || amqp_socket_open(socket, host, port)) fail("cannot connect to %s:%d", host, port);
    check(amqp_login(server, "/", 0, 131072, 0, AMQP_SASL_METHOD_PLAIN, "guest", "guest"), "login");
    amqp_channel_open(server, 1);
    check(amqp_get_rpc_reply(server), "channel");
}

static void declare(const char *queue) {
    amqp_queue_declare(server, 1, amqp_cstring_bytes(queue), 0, 1, 0, 0, amqp_empty_table);
    check(amqp_get_rpc_reply(server), "queue");
}

static void produce(const char *queue, long count, size_t size) {
    char *payload = room(1, size);
    random_payload(payload, size);
    amqp_bytes_t body = {size, payload}, key = amqp_cstring_bytes(queue);
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_DELIVERY_MODE_FLAG, .delivery_mode = 2};
    declare(queue);
    double began = now();
    for (long i = 0; i < count; i++)
        if (amqp_basic_publish(server, 1, amqp_empty_bytes, key, 0, 0, &properties, body))
            fail("publish failed at message %ld", i);
    declare(queue);
    answer_rate(count, now() - began);
}

static void consume(const char *queue, long count) {
    declare(queue);
    double began = now();
    amqp_basic_consume(server, 1, amqp_cstring_bytes(queue), amqp_empty_bytes, 0, 1, 0, amqp_empty_table);
    check(amqp_get_rpc_reply(server), "consume");
    for (long i = 0; i < count; i++) {
        struct timeval patience = {30, 0};
        amqp_envelope_t envelope;
        amqp_maybe_release_buffers(server);
        check(amqp_consume_message(server, &envelope, &patience, 0), "delivery");
        amqp_destroy_envelope(&envelope);
    }
    answer_rate(count, now() - began);
}

int main(int arguments, char **argument) {
    if (arguments < 6) fail("usage: see the head of rabbitmq.c");
    connect_to(argument[2], (int)number(argument[3]));
    if (arguments == 7 && !strcmp(argument[1], "produce"))
        produce(argument[4], number(argument[5]), (size_t)number(argument[6]));
    else if (!strcmp(argument[1], "consume"))
        consume(argument[4], number(argument[5]));
    else
        fail("usage: see the head of rabbitmq.c");
    return 0;
}
