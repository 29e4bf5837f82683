/* Consume throughput: one partition from its beginning, assigned by hand, no group.
 *
 * Counts from the first message on: looking up the first offset and starting to fetch is not what is measured.
 *
 * --bootstrap H:P --topic T --messages N [--partition N] [--conf name=value]...
 */
#include <stdio.h>

#include "common.h"
#include "rd_common.h"

#define IDLE_LIMIT_NS (60LL * 1000000000)

typedef struct {
    long messages;
    double bytes;
    int64_t next_offset;
    int64_t first_ns;
    long gaps;
} progress_t;

static void on_message(rd_kafka_message_t *message, void *opaque) {
    progress_t *progress = opaque;
    if (message->err) {
        if (message->err != RD_KAFKA_RESP_ERR__PARTITION_EOF) die("consume: %s", rd_kafka_message_errstr(message));
        return;
    }
    if (progress->first_ns == 0) {
        progress->first_ns = now_ns();
        progress->next_offset = message->offset;
    }
    if (message->offset != progress->next_offset) progress->gaps++;
    progress->next_offset = message->offset + 1;
    progress->messages++;
    progress->bytes += (double)message->len;
}

int main(int argc, char **argv) {
    long wanted = (long)arg_number(argc, argv, "--messages", 1e6);
    int partition = (int)arg_number(argc, argv, "--partition", 0);
    rd_kafka_conf_t *conf = rd_conf(argc, argv);
    /* Deep enough that the library never pauses fetching while this program keeps up. */
    rd_set(conf, "queued.min.messages", "1000000");
    rd_set(conf, "queued.max.messages.kbytes", "262144");
    rd_kafka_t *client = rd_client(RD_KAFKA_CONSUMER, conf);
    rd_kafka_topic_t *topic = rd_topic(client, arg_required(argc, argv, "--topic"), NULL);

    /* Connection and metadata are not what is measured. */
    const struct rd_kafka_metadata *metadata;
    if (rd_kafka_metadata(client, 0, topic, &metadata, 30000)) die("no metadata for the topic");
    rd_kafka_metadata_destroy(metadata);

    progress_t progress = {0};
    double cpu = own_cpu_seconds();
    int64_t start = now_ns(), last_progress = start;
    if (rd_kafka_consume_start(topic, partition, RD_KAFKA_OFFSET_BEGINNING) != 0)
        die("consume: %s", rd_kafka_err2str(rd_kafka_last_error()));
    while (progress.messages < wanted) {
        long before = progress.messages;
        rd_kafka_consume_callback(topic, partition, 100, on_message, &progress);
        rd_kafka_poll(client, 0);
        if (progress.messages > before) last_progress = now_ns();
        else if (now_ns() - last_progress > IDLE_LIMIT_NS)
            die("no message for a minute after %ld of %ld", progress.messages, wanted);
    }
    double seconds = (double)(now_ns() - progress.first_ns) / 1e9;
    printf("{\"messages\": %ld, \"bytes\": %.0f, \"seconds\": %.4f, \"mb_per_s\": %.2f, \"messages_per_s\": %.0f, "
           "\"first_ms\": %.1f, \"client_cpu_s\": %.3f, \"gaps\": %ld, \"disconnects\": %ld, \"errors\": %ld}\n",
           progress.messages, progress.bytes, seconds, progress.bytes / seconds / 1e6,
           (double)progress.messages / seconds, (double)(progress.first_ns - start) / 1e6, own_cpu_seconds() - cpu, progress.gaps,
           atomic_load(&rd_disconnects), atomic_load(&rd_errors));
    fflush(stdout);
    rd_kafka_consume_stop(topic, partition);
    rd_kafka_topic_destroy(topic);
    rd_kafka_destroy(client);
    return progress.gaps ? 1 : 0;
}
