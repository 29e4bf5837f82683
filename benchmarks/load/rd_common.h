/* librdkafka with the settings that all its load generators share. */
#ifndef PENSTOCK_LOAD_RD_COMMON_H
#define PENSTOCK_LOAD_RD_COMMON_H

#include <librdkafka/rdkafka.h>
#include <stdatomic.h>

/* Errors seen by any client of this process; the first one is kept for the report. */
extern atomic_long rd_errors;
extern atomic_long rd_disconnects;
/* Messages whose delivery failed. */
extern atomic_long rd_failed;

/* `--bootstrap` and every `--conf name=value`, error counting, no Nagle. */
rd_kafka_conf_t *rd_conf(int argc, char **argv);
void rd_set(rd_kafka_conf_t *conf, const char *name, const char *value);
rd_kafka_t *rd_client(rd_kafka_type_t type, rd_kafka_conf_t *conf);
rd_kafka_topic_t *rd_topic(rd_kafka_t *client, const char *name, const char *acks);
/* Waits for all deliveries; ends the program when they do not come. */
void rd_flush(rd_kafka_t *producer);

#endif
