/* A client of NATS JetStream, by libnats.
 *
 *   nats produce URL STREAM COUNT SIZE   asynchronous publishing, 4,000 without an answer; file store
 *   nats consume URL STREAM COUNT        a pull consumer, 1,000 a fetch, no acknowledgements
 */
#include "measure.h"

#include <nats/nats.h>

static void check(natsStatus status, const char *what) {
    if (status != NATS_OK) fail("%s: %s", what, natsStatus_GetText(status));
}

static void add_stream(jsCtx *context, const char *name) {
    const char *subjects[] = {name};
    jsStreamConfig config;
    jsStreamInfo *info = NULL;
    check(jsStreamConfig_Init(&config), "stream");
    config.Name = name;
    config.Subjects = subjects;
    config.SubjectsLen = 1;
    config.Storage = js_FileStorage;
    check(js_AddStream(&info, context, &config, NULL, NULL), "stream");
    jsStreamInfo_Destroy(info);
}

static void produce(jsCtx *context, const char *stream, long count, int size) {
    char *payload = room(1, (size_t)size);
    random_payload(payload, (size_t)size);
    add_stream(context, stream);
    double began = now();
    for (long i = 0; i < count; i++)
        check(js_PublishAsync(context, stream, payload, size, NULL), "publish");
    check(js_PublishAsyncComplete(context, NULL), "publish");
    double seconds = now() - began;
    natsMsgList pending = {0};
    if (js_PublishAsyncGetPendingList(&pending, context) == NATS_OK && pending.Count)
        fail("%d messages were not taken", pending.Count);
    answer_rate(count, seconds);
}

static void consume(jsCtx *context, const char *stream, long count) {
    jsSubOptions options;
    natsSubscription *subscription;
    check(jsSubOptions_Init(&options), "subscribe");
    options.Config.AckPolicy = js_AckNone;
    double began = now();
    check(js_PullSubscribe(&subscription, context, stream, NULL, NULL, &options, NULL), "subscribe");
    for (long got = 0; got < count;) {
        natsMsgList list = {0};
        long wanted = count - got < 1000 ? count - got : 1000;
        check(natsSubscription_Fetch(&list, subscription, (int)wanted, 30000, NULL), "fetch");
        got += list.Count;
        natsMsgList_Destroy(&list);
    }
    answer_rate(count, now() - began);
}

int main(int arguments, char **argument) {
    if (arguments < 5) fail("usage: see the head of nats.c");
    natsConnection *connection;
    jsCtx *context;
    jsOptions options;
    check(natsConnection_ConnectTo(&connection, argument[2]), "connect");
    check(jsOptions_Init(&options), "options");
    options.PublishAsync.MaxPending = 4000;
    options.PublishAsync.StallWait = 30000; /* how long to wait for room among them */
    options.Wait = 30000;
    check(natsConnection_JetStream(&context, connection, &options), "JetStream");
    if (arguments == 6 && !strcmp(argument[1], "produce"))
        produce(context, argument[3], number(argument[4]), (int)number(argument[5]));
    else if (!strcmp(argument[1], "consume"))
        consume(context, argument[3], number(argument[4]));
    else
        fail("usage: see the head of nats.c");
    return 0;
}
