/* End-to-end latency at a fixed rate: a producer without linger and a consumer in one process, so one clock.
 *
 * Each payload carries the moment at which it was due, not the moment at which it was handed over: a stall
 * counts against every message that it delayed.
 *
 * --bootstrap H:P --topic T [--rate 2000] [--size 100] [--seconds 10] [--warmup-seconds 2] [--acks 1]
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "common.h"
#include "rd_common.h"

#define DRAIN_LIMIT_NS (30LL * 1000000000)

typedef struct {
    rd_kafka_topic_t *topic;
    int64_t measure_from_ns;
    long expected;
    samples_t latencies;
    atomic_long received;
    atomic_int stop;
} reader_t;

static void on_delivery(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
    (void)client, (void)opaque;
    if (message->err) atomic_fetch_add(&rd_failed, 1);
}

static void *read_messages(void *opaque) {
    reader_t *reader = opaque;
    while (atomic_load(&reader->received) < reader->expected && !atomic_load(&reader->stop)) {
        rd_kafka_message_t *message = rd_kafka_consume(reader->topic, 0, 100);
        if (message == NULL) continue;
        int64_t due_ns;
        if (!message->err && message->len >= sizeof due_ns) {
            memcpy(&due_ns, message->payload, sizeof due_ns);
            if (due_ns >= reader->measure_from_ns) samples_add(&reader->latencies, now_ns() - due_ns);
            /* Zero marks a late probe: they only wait for the consumer to be in place. */
            if (due_ns != 0) atomic_fetch_add(&reader->received, 1);
        }
        rd_kafka_message_destroy(message);
    }
    return NULL;
}

static void send_one(rd_kafka_t *producer, rd_kafka_topic_t *topic, char *payload, size_t size, int64_t due_ns) {
    memcpy(payload, &due_ns, sizeof due_ns);
    while (rd_kafka_produce(topic, 0, RD_KAFKA_MSG_F_COPY, payload, size, NULL, 0, NULL) != 0)
        rd_kafka_poll(producer, 1);
}

int main(int argc, char **argv) {
    double rate = arg_number(argc, argv, "--rate", 2000);
    size_t size = (size_t)arg_number(argc, argv, "--size", 100);
    double seconds = arg_number(argc, argv, "--seconds", 10);
    double warmup = arg_number(argc, argv, "--warmup-seconds", 2);
    const char *name = arg_required(argc, argv, "--topic");
    if (size < sizeof(int64_t)) die("--size must hold a time stamp: at least %zu", sizeof(int64_t));

    rd_kafka_conf_t *conf = rd_conf(argc, argv);
    rd_set(conf, "queue.buffering.max.ms", "0");
    rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    rd_kafka_t *producer = rd_client(RD_KAFKA_PRODUCER, conf);
    rd_kafka_topic_t *out = rd_topic(producer, name, arg_text(argc, argv, "--acks", "1"));
    conf = rd_conf(argc, argv);
    rd_set(conf, "fetch.wait.max.ms", "500");
    rd_kafka_t *consumer = rd_client(RD_KAFKA_CONSUMER, conf);
    rd_kafka_topic_t *in = rd_topic(consumer, name, NULL);
    if (rd_kafka_consume_start(in, 0, RD_KAFKA_OFFSET_END) != 0) die("cannot consume");

    char *payload = random_payload(size);
    long count = (long)(rate * (seconds + warmup));
    reader_t reader = {.topic = in, .expected = count, .measure_from_ns = INT64_MAX};
    pthread_t thread;

    /* The consumer is in place once it sees a probe; it joins at the end, so earlier probes may pass it by. */
    for (int tries = 0; atomic_load(&reader.received) == 0; tries++) {
        if (tries == 300) die("the consumer sees nothing");
        send_one(producer, out, payload, size, 0);
        rd_flush(producer);
        rd_kafka_message_t *message = rd_kafka_consume(in, 0, 100);
        if (message == NULL) continue;
        if (!message->err) atomic_store(&reader.received, 1);
        rd_kafka_message_destroy(message);
    }
    for (rd_kafka_message_t *rest; (rest = rd_kafka_consume(in, 0, 500)) != NULL;) rd_kafka_message_destroy(rest);
    atomic_store(&reader.received, 0);

    int64_t start = now_ns() + 10000000;
    reader.measure_from_ns = start + (int64_t)(warmup * 1e9);
    pthread_create(&thread, NULL, read_messages, &reader);
    for (long i = 0; i < count; i++) {
        int64_t due = start + (int64_t)((double)i * 1e9 / rate);
        sleep_until_ns(due);
        send_one(producer, out, payload, size, due);
        if (i % 64 == 0) rd_kafka_poll(producer, 0);
    }
    double sending = (double)(now_ns() - start) / 1e9;
    rd_flush(producer);
    int64_t deadline = now_ns() + DRAIN_LIMIT_NS;
    while (atomic_load(&reader.received) < count && now_ns() < deadline) sleep_until_ns(now_ns() + 5000000);
    atomic_store(&reader.stop, 1);
    pthread_join(thread, NULL);

    long received = atomic_load(&reader.received);
    printf("{\"rate\": %.0f, \"achieved_rate\": %.1f, \"messages\": %ld, \"received\": %ld, \"measured\": %zu, ", rate,
           (double)count / sending, count, received, reader.latencies.count);
    samples_print(&reader.latencies);
    printf(", \"failed\": %ld, \"disconnects\": %ld}\n", atomic_load(&rd_failed), atomic_load(&rd_disconnects));
    return received == count && atomic_load(&rd_failed) == 0 ? 0 : 1;
}
