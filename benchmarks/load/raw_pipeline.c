/* Prepared Produce requests of one batch each, pipelined on one connection.
 *
 * Keeps `--window` requests in flight for `--seconds`; every answer is checked for order and error.
 *
 * --bootstrap H:P --topic T [--seconds 5] [--warmup-seconds 1] [--window 512] [--size 100] [--records 1] [--acks 1]
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "raw.h"

#define CHUNK_REQUESTS_MAX 64
#define RECEIVE_BYTES (256 * 1024)

typedef struct {
    int fd;
    frame_t frame;
    unsigned char *chunk; /* the next frames to go out */
    uint32_t chunk_requests;
    size_t chunk_size, chunk_sent;
    unsigned char received[RECEIVE_BYTES];
    size_t received_size;
    uint32_t built, answered;
} pipeline_t;

static void build_chunk(pipeline_t *line) {
    for (uint32_t i = 0; i < line->chunk_requests; i++)
        frame_set_correlation(line->chunk + (size_t)i * line->frame.size, line->built++);
    line->chunk_size = line->chunk_requests * line->frame.size;
    line->chunk_sent = 0;
}

static void send_some(pipeline_t *line) {
    ssize_t part = send(line->fd, line->chunk + line->chunk_sent, line->chunk_size - line->chunk_sent,
                        MSG_NOSIGNAL | MSG_DONTWAIT);
    if (part >= 0) line->chunk_sent += (size_t)part;
    else if (errno != EAGAIN) die("the broker closed the connection: %s", strerror(errno));
}

static void receive_some(pipeline_t *line) {
    ssize_t part = recv(line->fd, line->received + line->received_size, RECEIVE_BYTES - line->received_size,
                        MSG_DONTWAIT);
    if (part == 0) die("the broker closed the connection");
    if (part < 0) {
        if (errno != EAGAIN) die("receive: %s", strerror(errno));
        return;
    }
    line->received_size += (size_t)part;
    size_t at = 0;
    while (line->received_size - at >= 4) {
        size_t whole = 4 + (size_t)read_u32(line->received + at);
        if (whole > ANSWER_MAX_BYTES) die("answer of %zu bytes", whole);
        if (line->received_size - at < whole) break;
        check_answer(line->received + at, &line->frame, line->answered++);
        at += whole;
    }
    memmove(line->received, line->received + at, line->received_size - at);
    line->received_size -= at;
}

int main(int argc, char **argv) {
    double seconds = arg_number(argc, argv, "--seconds", 5);
    double warmup = arg_number(argc, argv, "--warmup-seconds", 1);
    uint32_t window = (uint32_t)arg_number(argc, argv, "--window", 512);
    size_t size = (size_t)arg_number(argc, argv, "--size", 100);
    int records = (int)arg_number(argc, argv, "--records", 1);
    pipeline_t *line = calloc(1, sizeof *line);
    line->frame = produce_frame(arg_required(argc, argv, "--topic"), 0, (int)arg_number(argc, argv, "--acks", 1),
                                size, records);
    line->chunk_requests = window < CHUNK_REQUESTS_MAX ? 1 : CHUNK_REQUESTS_MAX;
    line->chunk = malloc(line->chunk_requests * line->frame.size);
    for (uint32_t i = 0; i < line->chunk_requests; i++)
        memcpy(line->chunk + (size_t)i * line->frame.size, line->frame.bytes, line->frame.size);
    line->fd = connect_to(arg_required(argc, argv, "--bootstrap"));

    int64_t start = now_ns(), measured_from = 0, now = start;
    int64_t end = start + (int64_t)((warmup + seconds) * 1e9);
    uint32_t answered_before = 0;
    for (; now < end; now = now_ns()) {
        if (measured_from == 0 && now - start >= (int64_t)(warmup * 1e9)) {
            measured_from = now;
            answered_before = line->answered;
        }
        if (line->chunk_sent == line->chunk_size && line->built - line->answered + line->chunk_requests <= window)
            build_chunk(line);
        int sending = line->chunk_sent < line->chunk_size;
        struct pollfd ready = {.fd = line->fd, .events = (short)(POLLIN | (sending ? POLLOUT : 0))};
        poll(&ready, 1, 100);
        if (ready.revents & POLLOUT) send_some(line);
        if (ready.revents & (POLLIN | POLLHUP | POLLERR)) receive_some(line);
    }
    double took = (double)(now - measured_from) / 1e9;
    uint32_t counted = line->answered - answered_before;
    double messages = (double)counted * records;
    printf("{\"requests\": %u, \"seconds\": %.3f, \"requests_per_s\": %.0f, \"messages_per_s\": %.0f, "
           "\"mb_per_s\": %.2f, \"window\": %u}\n",
           counted, took, counted / took, messages / took, messages * (double)size / took / 1e6, window);
    return 0;
}
