/* Produce throughput: as fast as librdkafka goes into one partition, until the last acknowledgement.
 *
 * --bootstrap H:P --topic T --size BYTES --bytes TOTAL --acks 1|all [--partition N] [--conf name=value]...
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common.h"
#include "rd_common.h"

#define BATCH 1000

static void on_delivery(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
    (void)client, (void)opaque;
    if (message->err && atomic_fetch_add(&rd_failed, 1) == 0)
        fprintf(stderr, "first failed delivery: %s\n", rd_kafka_err2str(message->err));
}

/* Hands `count` messages to librdkafka, waiting for room in its queue. */
static void produce(rd_kafka_t *client, rd_kafka_topic_t *topic, int partition, char *payload, size_t size,
                    long count) {
    static rd_kafka_message_t batch[BATCH];
    while (count > 0) {
        int wanted = count < BATCH ? (int)count : BATCH;
        for (int i = 0; i < wanted; i++) {
            batch[i].payload = payload;
            batch[i].len = size;
            batch[i].err = RD_KAFKA_RESP_ERR_NO_ERROR;
        }
        int taken = rd_kafka_produce_batch(topic, partition, 0, batch, wanted);
        count -= taken;
        rd_kafka_poll(client, 0);
        if (taken < wanted) {
            /* All messages are alike, so it does not matter which ones found the queue full. */
            for (int i = taken; i < wanted; i++)
                if (batch[i].err && batch[i].err != RD_KAFKA_RESP_ERR__QUEUE_FULL)
                    die("produce: %s", rd_kafka_err2str(batch[i].err));
            usleep(500);
        }
    }
}

int main(int argc, char **argv) {
    size_t size = (size_t)arg_number(argc, argv, "--size", 1000);
    long count = (long)(arg_number(argc, argv, "--bytes", 1e9) / (double)size);
    int partition = (int)arg_number(argc, argv, "--partition", 0);
    const char *acks = arg_text(argc, argv, "--acks", "1");

    rd_kafka_conf_t *conf = rd_conf(argc, argv);
    /* Only failures come back one by one: per-message reports would make the client the limit. */
    rd_set(conf, "delivery.report.only.error", "true");
    rd_set(conf, "queue.buffering.max.messages", "2000000");
    rd_set(conf, "queue.buffering.max.kbytes", "131072");
    rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    rd_kafka_t *client = rd_client(RD_KAFKA_PRODUCER, conf);
    rd_kafka_topic_t *topic = rd_topic(client, arg_required(argc, argv, "--topic"), acks);
    char *payload = random_payload(size);

    /* Connection and metadata are not what is measured. */
    produce(client, topic, partition, payload, size, 1);
    rd_flush(client);

    double cpu = own_cpu_seconds();
    int64_t start = now_ns();
    produce(client, topic, partition, payload, size, count);
    rd_flush(client);
    double seconds = (double)(now_ns() - start) / 1e9;
    double bytes = (double)count * (double)size;
    printf("{\"messages\": %ld, \"bytes\": %.0f, \"seconds\": %.4f, \"mb_per_s\": %.2f, \"messages_per_s\": %.0f, "
           "\"client_cpu_s\": %.3f, \"failed\": %ld, \"disconnects\": %ld, \"errors\": %ld}\n",
           count, bytes, seconds, bytes / seconds / 1e6, (double)count / seconds, own_cpu_seconds() - cpu,
           atomic_load(&rd_failed), atomic_load(&rd_disconnects), atomic_load(&rd_errors));
    rd_kafka_topic_destroy(topic);
    rd_kafka_destroy(client);
    free(payload);
    return atomic_load(&rd_failed) ? 1 : 0;
}
