/* Many real clients at once: half produce at a low rate, half consume what their partner wrote.
 *
 * Each client is a librdkafka instance of its own, with its own connections. Runs until its time is up or
 * SIGINT comes, then waits until everything sent was acknowledged and read.
 *
 * --bootstrap H:P --topic T --clients 50 [--rate 10] [--seconds 3600]     topic: one partition per pair
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "common.h"
#include "rd_common.h"

#define PAYLOAD_BYTES 100
#define DRAIN_LIMIT_NS (60LL * 1000000000)

typedef struct {
    rd_kafka_t *producer, *consumer;
    rd_kafka_topic_t *out, *in;
    long sent, read;
} pair_t;

static volatile sig_atomic_t interrupted;
static samples_t latencies;
static long acknowledged;

static void on_interrupt(int number) {
    (void)number;
    interrupted = 1;
}

static void on_delivery(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
    (void)client, (void)opaque;
    if (message->err) {
        atomic_fetch_add(&rd_failed, 1);
        return;
    }
    acknowledged++;
    samples_add(&latencies, rd_kafka_message_latency(message) * 1000);
}

static void on_message(rd_kafka_message_t *message, void *opaque) {
    if (!message->err) ++*(long *)opaque;
}

static long poll_all(pair_t *pairs, int count) {
    long waiting = 0;
    for (int i = 0; i < count; i++) {
        rd_kafka_poll(pairs[i].producer, 0);
        rd_kafka_consume_callback(pairs[i].in, i, 0, on_message, &pairs[i].read);
        rd_kafka_poll(pairs[i].consumer, 0);
        waiting += pairs[i].sent - pairs[i].read;
    }
    return waiting;
}

int main(int argc, char **argv) {
    int count = (int)arg_number(argc, argv, "--clients", 50) / 2;
    double rate = arg_number(argc, argv, "--rate", 10);
    double seconds = arg_number(argc, argv, "--seconds", 3600);
    const char *name = arg_required(argc, argv, "--topic");
    signal(SIGINT, on_interrupt);
    raise_file_limit();

    pair_t *pairs = calloc((size_t)count, sizeof *pairs);
    for (int i = 0; i < count; i++) {
        rd_kafka_conf_t *conf = rd_conf(argc, argv);
        rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
        pairs[i].producer = rd_client(RD_KAFKA_PRODUCER, conf);
        pairs[i].out = rd_topic(pairs[i].producer, name, "1");
        pairs[i].consumer = rd_client(RD_KAFKA_CONSUMER, rd_conf(argc, argv));
        pairs[i].in = rd_topic(pairs[i].consumer, name, NULL);
        int64_t first, end;
        if (rd_kafka_query_watermark_offsets(pairs[i].consumer, name, i, &first, &end, 30000))
            die("no offsets of partition %d", i);
        if (rd_kafka_consume_start(pairs[i].in, i, end) != 0) die("cannot consume");
    }

    char *payload = random_payload(PAYLOAD_BYTES);
    int64_t start = now_ns(), tick = start;
    while (!interrupted && tick - start < (int64_t)(seconds * 1e9)) {
        long due = (long)((double)(tick - start) / 1e9 * rate);
        for (int i = 0; i < count; i++)
            while (pairs[i].sent < due) {
                if (rd_kafka_produce(pairs[i].out, i, 0, payload, PAYLOAD_BYTES, NULL, 0, NULL) != 0) break;
                pairs[i].sent++;
            }
        poll_all(pairs, count);
        tick += 5000000;
        sleep_until_ns(tick);
    }
    long sent = 0, waiting;
    for (int i = 0; i < count; i++) {
        rd_flush(pairs[i].producer);
        sent += pairs[i].sent;
    }
    int64_t deadline = now_ns() + DRAIN_LIMIT_NS;
    while ((waiting = poll_all(pairs, count)) > 0 && now_ns() < deadline) sleep_until_ns(now_ns() + 5000000);
    printf("{\"clients\": %d, \"sent\": %ld, \"acknowledged\": %ld, \"read\": %ld, ", 2 * count, sent, acknowledged,
           sent - waiting);
    samples_print(&latencies);
    printf(", \"failed\": %ld, \"disconnects\": %ld, \"errors\": %ld}\n", atomic_load(&rd_failed),
           atomic_load(&rd_disconnects), atomic_load(&rd_errors));
    return waiting == 0 && acknowledged == sent ? 0 : 1;
}
