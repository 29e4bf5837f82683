#include "rd_common.h"

#include <stdio.h>
#include <string.h>

#include "common.h"

#define FLUSH_TIMEOUT_MS 300000

atomic_long rd_errors, rd_disconnects, rd_failed;

static void on_error(rd_kafka_t *client, int code, const char *reason, void *opaque) {
    (void)client, (void)opaque;
    if (code == RD_KAFKA_RESP_ERR__TRANSPORT) atomic_fetch_add(&rd_disconnects, 1);
    if (atomic_fetch_add(&rd_errors, 1) == 0) fprintf(stderr, "first client error: %s\n", reason);
}

void rd_set(rd_kafka_conf_t *conf, const char *name, const char *value) {
    char reason[256];
    if (rd_kafka_conf_set(conf, name, value, reason, sizeof reason) != RD_KAFKA_CONF_OK) die("%s", reason);
}

rd_kafka_conf_t *rd_conf(int argc, char **argv) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_set(conf, "bootstrap.servers", arg_required(argc, argv, "--bootstrap"));
    rd_set(conf, "socket.nagle.disable", "true");
    rd_set(conf, "log_level", "2");
    rd_kafka_conf_set_error_cb(conf, on_error);
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--conf") != 0) continue;
        char name[128];
        const char *equals = strchr(argv[i + 1], '=');
        if (equals == NULL || (size_t)(equals - argv[i + 1]) >= sizeof name) die("--conf takes name=value");
        snprintf(name, sizeof name, "%.*s", (int)(equals - argv[i + 1]), argv[i + 1]);
        rd_set(conf, name, equals + 1);
    }
    return conf;
}

rd_kafka_t *rd_client(rd_kafka_type_t type, rd_kafka_conf_t *conf) {
    char reason[256];
    rd_kafka_t *client = rd_kafka_new(type, conf, reason, sizeof reason);
    if (client == NULL) die("%s", reason);
    return client;
}

rd_kafka_topic_t *rd_topic(rd_kafka_t *client, const char *name, const char *acks) {
    char reason[256];
    rd_kafka_topic_conf_t *conf = rd_kafka_topic_conf_new();
    if (acks != NULL &&
        rd_kafka_topic_conf_set(conf, "acks", acks, reason, sizeof reason) != RD_KAFKA_CONF_OK)
        die("%s", reason);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client, name, conf);
    if (topic == NULL) die("topic %s: %s", name, rd_kafka_err2str(rd_kafka_last_error()));
    return topic;
}

void rd_flush(rd_kafka_t *producer) {
    if (rd_kafka_flush(producer, FLUSH_TIMEOUT_MS) != RD_KAFKA_RESP_ERR_NO_ERROR)
        die("%d messages unacknowledged after %d s", rd_kafka_outq_len(producer), FLUSH_TIMEOUT_MS / 1000);
}
