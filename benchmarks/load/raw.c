#include "raw.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common.h"

#define TIMEOUT_MS 30000
#define BATCH_HEADER_MAX 128
#define RECORD_OVERHEAD_MAX 32

static uint32_t crc32c(const unsigned char *bytes, size_t size) {
    uint32_t crc = 0xFFFFFFFF;
    for (size_t i = 0; i < size; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (0x82F63B78 & -(crc & 1));
    }
    return ~crc;
}

/* `count` records without key or headers, in a batch without producer id. */
static void put_batch(writer_t *to, size_t value_bytes, int count) {
    int64_t now_ms = (int64_t)time(NULL) * 1000;
    writer_t record = {.bytes = malloc(value_bytes + RECORD_OVERHEAD_MAX)};
    writer_t tail = {.bytes = malloc(BATCH_HEADER_MAX + (size_t)count * (value_bytes + RECORD_OVERHEAD_MAX))};
    char *value = random_payload(value_bytes);

    /* All that the CRC covers. */
    put_int(&tail, 0, 2);                    /* attributes */
    put_int(&tail, (uint64_t)count - 1, 4);  /* last offset delta */
    put_int(&tail, (uint64_t)now_ms, 8);     /* base timestamp */
    put_int(&tail, (uint64_t)now_ms, 8);     /* max timestamp */
    put_int(&tail, UINT64_MAX, 8);           /* producer id */
    put_int(&tail, 0xFFFF, 2);               /* producer epoch */
    put_int(&tail, 0xFFFFFFFF, 4);           /* base sequence */
    put_int(&tail, (uint64_t)count, 4);      /* records */
    for (int i = 0; i < count; i++) {
        record.size = 0;
        put_int(&record, 0, 1);   /* attributes */
        put_varint(&record, 0);   /* timestamp delta */
        put_varint(&record, i);   /* offset delta */
        put_varint(&record, -1);  /* no key */
        put_varint(&record, (int64_t)value_bytes);
        put(&record, value, value_bytes);
        put_varint(&record, 0);   /* headers */
        put_varint(&tail, (int64_t)record.size);
        put(&tail, record.bytes, record.size);
    }

    put_int(to, 0, 8);                    /* base offset */
    put_int(to, tail.size + 9, 4);        /* length of what follows */
    put_int(to, 0xFFFFFFFF, 4);           /* leader epoch */
    put_int(to, 2, 1);                    /* magic */
    put_int(to, crc32c(tail.bytes, tail.size), 4);
    put(to, tail.bytes, tail.size);
    free(value);
    free(record.bytes);
    free(tail.bytes);
}

frame_t produce_frame(const char *topic, int partition, int acks, size_t value_bytes, int records) {
    size_t name = strlen(topic);
    if (name > 126) die("topic name too long for a one-byte length");
    writer_t batch = {.bytes = malloc(BATCH_HEADER_MAX + (size_t)records * (value_bytes + RECORD_OVERHEAD_MAX))};
    put_batch(&batch, value_bytes, records);

    writer_t out = {.bytes = malloc(batch.size + name + 128)};
    begin_request(&out, 0, 9);
    put_uvarint(&out, 0); /* no transactional id */
    put_int(&out, (uint64_t)(uint16_t)acks, 2);
    put_int(&out, TIMEOUT_MS, 4);
    put_uvarint(&out, 2);
    put_text(&out, topic);
    put_uvarint(&out, 2);
    put_int(&out, (uint64_t)partition, 4);
    put_uvarint(&out, batch.size + 1);
    put(&out, batch.bytes, batch.size);
    for (int i = 0; i < 3; i++) put_uvarint(&out, 0);
    end_request(&out);
    free(batch.bytes);
    /* Answer: size, correlation id, tags, topics, name, partitions, index, then the error. */
    return (frame_t){.bytes = out.bytes, .size = out.size, .error_offset = 4 + 4 + 1 + 1 + 1 + name + 1 + 4};
}

void check_answer(const unsigned char *at, const frame_t *frame, uint32_t correlation_id) {
    if (read_u32(at + 4) != correlation_id)
        die("answer %u out of turn: request %u was next", read_u32(at + 4), correlation_id);
    if (read_u16(at + frame->error_offset) != 0)
        die("produce was refused with error %d", (int16_t)read_u16(at + frame->error_offset));
}
