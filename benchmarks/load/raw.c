#include "raw.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common.h"

#define CLIENT_ID "raw"
#define TIMEOUT_MS 30000
#define BATCH_HEADER_MAX 128
#define RECORD_OVERHEAD_MAX 32

typedef struct {
    unsigned char *bytes;
    size_t size;
} writer_t;

static void put(writer_t *to, const void *bytes, size_t size) {
    memcpy(to->bytes + to->size, bytes, size);
    to->size += size;
}

static void put_int(writer_t *to, uint64_t value, int width) {
    for (int shift = 8 * (width - 1); shift >= 0; shift -= 8) to->bytes[to->size++] = (unsigned char)(value >> shift);
}

static void put_uvarint(writer_t *to, uint64_t value) {
    for (; value >= 0x80; value >>= 7) to->bytes[to->size++] = (unsigned char)(value | 0x80);
    to->bytes[to->size++] = (unsigned char)value;
}

static void put_varint(writer_t *to, int64_t value) {
    put_uvarint(to, ((uint64_t)value << 1) ^ (uint64_t)(value >> 63));
}

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

    writer_t out = {.bytes = malloc(batch.size + name + 128), .size = 4};
    put_int(&out, 0, 2);
    put_int(&out, 9, 2);
    put_int(&out, 0, 4);
    put_int(&out, strlen(CLIENT_ID), 2);
    put(&out, CLIENT_ID, strlen(CLIENT_ID));
    put_uvarint(&out, 0);
    put_uvarint(&out, 0); /* no transactional id */
    put_int(&out, (uint64_t)(uint16_t)acks, 2);
    put_int(&out, TIMEOUT_MS, 4);
    put_uvarint(&out, 2);
    put_uvarint(&out, name + 1);
    put(&out, topic, name);
    put_uvarint(&out, 2);
    put_int(&out, (uint64_t)partition, 4);
    put_uvarint(&out, batch.size + 1);
    put(&out, batch.bytes, batch.size);
    for (int i = 0; i < 3; i++) put_uvarint(&out, 0);
    writer_t size = {.bytes = out.bytes};
    put_int(&size, out.size - 4, 4);
    free(batch.bytes);
    /* Answer: size, correlation id, tags, topics, name, partitions, index, then the error. */
    return (frame_t){.bytes = out.bytes, .size = out.size, .error_offset = 4 + 4 + 1 + 1 + 1 + name + 1 + 4};
}

void frame_set_correlation(unsigned char *frame, uint32_t correlation_id) {
    uint32_t wire = htonl(correlation_id);
    memcpy(frame + CORRELATION_OFFSET, &wire, sizeof wire);
}

uint32_t read_u32(const unsigned char *at) {
    uint32_t wire;
    memcpy(&wire, at, sizeof wire);
    return ntohl(wire);
}

uint16_t read_u16(const unsigned char *at) {
    uint16_t wire;
    memcpy(&wire, at, sizeof wire);
    return ntohs(wire);
}

void check_answer(const unsigned char *at, const frame_t *frame, uint32_t correlation_id) {
    if (read_u32(at + 4) != correlation_id)
        die("answer %u out of turn: request %u was next", read_u32(at + 4), correlation_id);
    if (read_u16(at + frame->error_offset) != 0)
        die("produce was refused with error %d", (int16_t)read_u16(at + frame->error_offset));
}

int connect_to(const char *bootstrap) {
    char host[64];
    const char *colon = strrchr(bootstrap, ':');
    if (colon == NULL || (size_t)(colon - bootstrap) >= sizeof host) die("--bootstrap takes HOST:PORT");
    snprintf(host, sizeof host, "%.*s", (int)(colon - bootstrap), bootstrap);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(colon + 1))};
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1) die("not an IPv4 address: %s", host);
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        die("cannot connect to %s: %s", bootstrap, strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

void send_all(int fd, const void *bytes, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t part = send(fd, (const char *)bytes + done, size - done, MSG_NOSIGNAL);
        if (part <= 0) die("the broker closed the connection: %s", strerror(errno));
        done += (size_t)part;
    }
}

void receive_all(int fd, void *bytes, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t part = recv(fd, (char *)bytes + done, size - done, 0);
        if (part <= 0) die("the broker closed the connection");
        done += (size_t)part;
    }
}
