/* Fetch throughput of the broker alone: whole answers are received and walked batch by batch, no record is opened.
 *
 * One Fetch v4 request in flight, 1 MB per answer, as client libraries ask by default.
 *
 * --bootstrap H:P --topic T --messages N [--partition 0] [--fetch-bytes 1048576]
 *
 *   size i32 | key 1 i16 | version 4 i16 | correlation id i32 | client id string | replica -1 i32 | max wait i32 |
 *   min bytes i32 | max bytes i32 | isolation i8 | topics 1 i32 | name | partitions 1 i32 | index i32 | offset i64 |
 *   max bytes i32
 */
#include <arpa/inet.h>
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "raw.h"

#define CLIENT_ID "raw"
#define WAIT_MS 500
#define BATCH_HEADER_BYTES 61
#define LAST_DELTA_AT 23
#define COUNT_AT 57

typedef struct {
    unsigned char bytes[512];
    size_t size, offset_at;
} request_t;

typedef struct {
    int64_t next_offset;
    double messages, bytes;
} progress_t;

static void add(request_t *to, uint64_t value, int width) {
    for (int shift = 8 * (width - 1); shift >= 0; shift -= 8) to->bytes[to->size++] = (unsigned char)(value >> shift);
}

static void add_text(request_t *to, const char *text) {
    add(to, strlen(text), 2);
    memcpy(to->bytes + to->size, text, strlen(text));
    to->size += strlen(text);
}

static request_t fetch_request(const char *topic, uint32_t partition, uint32_t max_bytes) {
    if (strlen(topic) > 249) die("topic name too long");
    request_t request = {.size = 4};
    add(&request, 1, 2);
    add(&request, 4, 2);
    add(&request, 0, 4);
    add_text(&request, CLIENT_ID);
    add(&request, UINT32_MAX, 4);
    add(&request, WAIT_MS, 4);
    add(&request, 1, 4);
    add(&request, 50 * 1024 * 1024, 4);
    add(&request, 0, 1);
    add(&request, 1, 4);
    add_text(&request, topic);
    add(&request, 1, 4);
    add(&request, partition, 4);
    request.offset_at = request.size;
    add(&request, 0, 8);
    add(&request, max_bytes, 4);
    uint32_t size = htonl((uint32_t)request.size - 4);
    memcpy(request.bytes, &size, 4);
    return request;
}

static int64_t read_i64(const unsigned char *at) {
    uint64_t wire;
    memcpy(&wire, at, sizeof wire);
    return (int64_t)be64toh(wire);
}

/* Every whole batch must begin where the last one ended; a partial one at the end is fetched again. */
static void walk(const unsigned char *at, const unsigned char *end, progress_t *progress) {
    while (end - at >= BATCH_HEADER_BYTES) {
        size_t whole = 12 + (size_t)read_u32(at + 8);
        if ((size_t)(end - at) < whole) return;
        if (read_i64(at) != progress->next_offset)
            die("a batch at offset %ld, %ld was next", (long)read_i64(at), (long)progress->next_offset);
        progress->next_offset += 1 + (int64_t)read_u32(at + LAST_DELTA_AT);
        progress->messages += read_u32(at + COUNT_AT);
        progress->bytes += (double)whole;
        at += whole;
    }
}

int main(int argc, char **argv) {
    double wanted = arg_number(argc, argv, "--messages", 1e6);
    const char *topic = arg_required(argc, argv, "--topic");
    uint32_t fetch_bytes = (uint32_t)arg_number(argc, argv, "--fetch-bytes", 1024 * 1024);
    request_t request = fetch_request(topic, (uint32_t)arg_number(argc, argv, "--partition", 0), fetch_bytes);
    size_t capacity = 4 * (size_t)fetch_bytes + 4096;
    unsigned char *answer = malloc(capacity);
    /* Correlation id, throttle, topics, name, partitions, index, error, two offsets, aborted, length. */
    size_t error_at = 4 + 4 + 4 + 2 + strlen(topic) + 4 + 4, aborted_at = error_at + 2 + 8 + 8;
    int fd = connect_to(arg_required(argc, argv, "--bootstrap"));

    progress_t progress = {0};
    int64_t start = now_ns();
    while (progress.messages < wanted) {
        uint64_t offset = htobe64((uint64_t)progress.next_offset);
        memcpy(request.bytes + request.offset_at, &offset, 8);
        send_all(fd, request.bytes, request.size);
        receive_all(fd, answer, 4);
        size_t size = read_u32(answer);
        if (size > capacity || size < aborted_at + 8) die("an answer of %zu bytes", size);
        receive_all(fd, answer, size);
        if (read_u16(answer + error_at)) die("fetch was refused with error %d", (int16_t)read_u16(answer + error_at));
        int32_t aborted = (int32_t)read_u32(answer + aborted_at);
        if (aborted > 0) die("a topic without transactions has aborted ones");
        double before = progress.messages;
        walk(answer + aborted_at + 8, answer + size, &progress);
        if (progress.messages == before) die("no more after %.0f of %.0f messages", before, wanted);
    }
    double seconds = (double)(now_ns() - start) / 1e9;
    printf("{\"messages\": %.0f, \"bytes\": %.0f, \"seconds\": %.4f, \"mb_per_s\": %.2f, \"messages_per_s\": %.0f}\n",
           progress.messages, progress.bytes, seconds, progress.bytes / seconds / 1e6, progress.messages / seconds);
    return 0;
}
