/* What every client here measures with: a clock, a payload, an answer in JSON.
 *
 * Rules: a client does one thing, prints one JSON object on stdout and exits 0; anything that goes
 * wrong is told on stderr and exits 1, so that a wrong run can never look like a slow one.
 */
#ifndef MEASURE_H
#define MEASURE_H

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

static long number(const char *text) {
    char *end;
    long found = strtol(text, &end, 10);
    if (*end || end == text) fail("%s is not a number", text);
    return found;
}

static __attribute__((unused)) void *room(size_t count, size_t size) {
    void *found = calloc(count, size);
    if (!found) fail("no memory for %zu x %zu bytes", count, size);
    return found;
}

/* Random bytes do not compress; events of one kind are alike but for some fields. */
static __attribute__((unused)) void random_payload(char *payload, size_t size) {
    uint64_t state = 88172645463325252u;
    for (size_t i = 0; i < size; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        payload[i] = (char)state;
    }
}

static __attribute__((unused)) void event_payload(char *payload, size_t size, long index) {
    uint64_t mixed = (uint64_t)(index + 1) * 0x9E3779B97F4A7C15u;
    char text[512];
    int length = snprintf(
        text, sizeof text,
        "{\"time\":%ld,\"server\":\"app%02d.example\",\"service\":\"search\",\"member\":%lu,"
        "\"page\":\"/jobs/view/%lu\",\"agent\":\"Mozilla/5.0\",\"referrer\":\"/feed\",\"tree\":\"%016lx\","
        "\"status\":200,\"locale\":\"en_US\",\"millis\":%lu}",
        1700000000000L + index * 3, (int)(mixed >> 60), (mixed >> 32) % 50000000,
        (mixed >> 20) % 900000, mixed * 0xBF58476D1CE4E5B9u, (mixed >> 8) % 400);
    memset(payload, ' ', size);
    memcpy(payload, text, (size_t)length < size ? (size_t)length : size);
}

static __attribute__((unused)) void answer_rate(long count, double seconds) {
    printf("{\"count\": %ld, \"seconds\": %.6f}\n", count, seconds);
}

static int ascending(const void *one, const void *other) {
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static __attribute__((unused)) void answer_times(double *times, long count, double seconds) {
    qsort(times, (size_t)count, sizeof *times, ascending);
    printf("{\"count\": %ld, \"seconds\": %.6f, \"p50\": %.9f, \"p99\": %.9f, \"p999\": %.9f}\n",
           count, seconds, times[count / 2], times[count * 99 / 100], times[count * 999 / 1000]);
}

#endif
