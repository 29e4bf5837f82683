/* Produces at a fixed rate until its time is up or SIGINT comes, and says how long acknowledgements took.
 *
 * --bootstrap H:P --topic T --mb-per-s R [--size 1000] [--seconds 3600] [--warmup-seconds 2] [--acks 1]
 * [--partition N]
 */
#include <signal.h>
#include <stdio.h>

#include "common.h"
#include "rd_common.h"

#define TICK_NS 1000000

static volatile sig_atomic_t interrupted;
static samples_t latencies;
static atomic_int measuring;

static void on_interrupt(int number) {
    (void)number;
    interrupted = 1;
}

static void on_delivery(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
    (void)client, (void)opaque;
    if (message->err) atomic_fetch_add(&rd_failed, 1);
    else if (atomic_load(&measuring)) samples_add(&latencies, rd_kafka_message_latency(message) * 1000);
}

int main(int argc, char **argv) {
    size_t size = (size_t)arg_number(argc, argv, "--size", 1000);
    int partition = (int)arg_number(argc, argv, "--partition", 0);
    double rate = arg_number(argc, argv, "--mb-per-s", 50) * 1e6 / (double)size;
    double seconds = arg_number(argc, argv, "--seconds", 3600);
    double warmup = arg_number(argc, argv, "--warmup-seconds", 2);
    signal(SIGINT, on_interrupt);

    rd_kafka_conf_t *conf = rd_conf(argc, argv);
    rd_set(conf, "queue.buffering.max.messages", "2000000");
    rd_set(conf, "queue.buffering.max.kbytes", "524288");
    rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    rd_kafka_t *client = rd_client(RD_KAFKA_PRODUCER, conf);
    rd_kafka_topic_t *topic =
        rd_topic(client, arg_required(argc, argv, "--topic"), arg_text(argc, argv, "--acks", "1"));
    char *payload = random_payload(size);

    long sent = 0, refused = 0, sent_at_warmup = 0;
    int64_t start = now_ns(), tick = start, measured_from = start;
    while (!interrupted && tick - start < (int64_t)((seconds + warmup) * 1e9)) {
        long due = (long)((double)(tick - start) / 1e9 * rate);
        while (sent < due && !interrupted) {
            if (rd_kafka_produce(topic, partition, 0, payload, size, NULL, 0, NULL) == 0) {
                sent++;
            } else {
                /* A full queue means that the broker does not hold the rate. */
                refused++;
                rd_kafka_poll(client, 10);
            }
        }
        rd_kafka_poll(client, 0);
        if (!atomic_load(&measuring) && tick - start >= (int64_t)(warmup * 1e9)) {
            atomic_store(&measuring, 1);
            measured_from = now_ns();
            sent_at_warmup = sent;
        }
        tick += TICK_NS;
        sleep_until_ns(tick);
        if (now_ns() > tick) tick = now_ns();
    }
    double measured = (double)(now_ns() - measured_from) / 1e9;
    double achieved = (double)(sent - sent_at_warmup) * (double)size / measured / 1e6;
    rd_flush(client);
    if (latencies.count == 0) die("ended before its warm-up did");
    printf("{\"mb_per_s_wanted\": %.2f, \"mb_per_s\": %.2f, \"seconds\": %.2f, \"messages\": %ld, \"queue_full\": %ld, ",
           rate * (double)size / 1e6, achieved, measured, sent, refused);
    samples_print(&latencies);
    printf(", \"failed\": %ld, \"disconnects\": %ld}\n", atomic_load(&rd_failed), atomic_load(&rd_disconnects));
    return atomic_load(&rd_failed) ? 1 : 0;
}
