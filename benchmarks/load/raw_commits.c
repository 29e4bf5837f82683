/* Offset commits, pipelined on many connections, a group each: what a consumer of any language sends, over and over.
 *
 * Keeps `--window` OffsetCommit v8 requests in flight on each connection; every answer is checked for order and error.
 * The groups have no members, as those of consumers that were assigned their partitions by hand. Offsets rise.
 *
 * --bootstrap H:P --topic T [--connections 100] [--window 5] [--partitions 1] [--seconds 5] [--warmup-seconds 1]
 * [--name commits]
 *
 *   group | generation -1 i32 | member "" | instance null | topics 1 | name | partitions | index i32 | offset i64 |
 *   leader epoch -1 i32 | metadata "" | tags
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "common.h"
#include "wire.h"

#define OFFSET_COMMIT 8
#define PARTITIONS_MAX 64
#define REQUEST_MAX_BYTES (512 + 32 * PARTITIONS_MAX)
#define RECEIVE_BYTES (64 * 1024)
#define EVENTS 256

typedef struct {
    int fd;
    writer_t frame;
    size_t offsets_at[PARTITIONS_MAX];
    size_t partitions;
    unsigned char *outgoing; /* a whole window of frames */
    uint32_t sent, answered;
    unsigned char received[RECEIVE_BYTES];
    size_t received_size;
} committer_t;

static void build(committer_t *one, const char *topic, const char *group) {
    one->frame.bytes = malloc(REQUEST_MAX_BYTES);
    begin_request(&one->frame, OFFSET_COMMIT, 8);
    put_text(&one->frame, group);
    put_int(&one->frame, UINT32_MAX, 4);
    put_text(&one->frame, "");
    put_uvarint(&one->frame, 0);
    put_uvarint(&one->frame, 1 + 1);
    put_text(&one->frame, topic);
    put_uvarint(&one->frame, one->partitions + 1);
    for (size_t i = 0; i < one->partitions; i++) {
        put_int(&one->frame, i, 4);
        one->offsets_at[i] = one->frame.size;
        put_int(&one->frame, 0, 8);
        put_int(&one->frame, UINT32_MAX, 4);
        put_text(&one->frame, "");
        put_uvarint(&one->frame, 0);
    }
    put_uvarint(&one->frame, 0);
    put_uvarint(&one->frame, 0);
    end_request(&one->frame);
}

/* The worst error of an answer. */
static int error_of(reader_t answer) {
    int worst = 0;
    take_int(&answer, 4); /* throttle */
    uint64_t topics = take_uvarint(&answer) - 1;
    for (uint64_t i = 0; i < topics; i++) {
        take_text(&answer, NULL, 0);
        uint64_t partitions = take_uvarint(&answer) - 1;
        for (uint64_t k = 0; k < partitions; k++) {
            take_int(&answer, 4);
            int error = (int)take_int(&answer, 2);
            if (error != 0) worst = error;
            take_uvarint(&answer);
        }
        take_uvarint(&answer);
    }
    return worst;
}

static void send_next(committer_t *one, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        unsigned char *frame = one->outgoing + (size_t)i * one->frame.size;
        for (size_t k = 0; k < one->partitions; k++) {
            writer_t at = {.bytes = frame + one->offsets_at[k]};
            put_int(&at, one->sent, 8);
        }
        frame_set_correlation(frame, one->sent++);
    }
    send_all(one->fd, one->outgoing, count * one->frame.size);
}

/* One commit that waits until the group's coordinator is there. */
static void commit_first(committer_t *one, int64_t deadline_ns) {
    unsigned char buffer[RECEIVE_BYTES];
    for (int error = -1; error != 0;) {
        send_next(one, 1);
        error = error_of(receive_answer(one->fd, buffer, sizeof buffer));
        one->answered++;
        if (error != 0) wait_for_coordinator(error, deadline_ns);
    }
}

/* How many answers came in. */
static uint32_t receive_some(committer_t *one) {
    ssize_t part = recv(one->fd, one->received + one->received_size, RECEIVE_BYTES - one->received_size, MSG_DONTWAIT);
    if (part == 0) die("the broker closed the connection");
    if (part < 0) {
        if (errno != EAGAIN) die("receive: %s", strerror(errno));
        return 0;
    }
    one->received_size += (size_t)part;
    size_t at = 0;
    uint32_t count = 0;
    while (one->received_size - at >= 4) {
        size_t whole = 4 + (size_t)read_u32(one->received + at);
        if (whole > RECEIVE_BYTES) die("answer of %zu bytes", whole);
        if (one->received_size - at < whole) break;
        if (read_u32(one->received + at + 4) != one->answered++) die("an answer came out of turn");
        int error = error_of((reader_t){.bytes = one->received + at, .size = whole, .at = ANSWER_BODY_OFFSET});
        if (error != 0) die("a commit was refused with error %d", error);
        at += whole;
        count++;
    }
    memmove(one->received, one->received + at, one->received_size - at);
    one->received_size -= at;
    return count;
}

int main(int argc, char **argv) {
    const char *bootstrap = arg_required(argc, argv, "--bootstrap"), *topic = arg_required(argc, argv, "--topic");
    const char *name = arg_text(argc, argv, "--name", "commits");
    long count = (long)arg_number(argc, argv, "--connections", 100);
    uint32_t window = (uint32_t)arg_number(argc, argv, "--window", 5);
    size_t partitions = (size_t)arg_number(argc, argv, "--partitions", 1);
    double seconds = arg_number(argc, argv, "--seconds", 5), warmup = arg_number(argc, argv, "--warmup-seconds", 1);
    if (partitions > PARTITIONS_MAX) die("at most %d partitions", PARTITIONS_MAX);
    if (strlen(topic) + strlen(name) > 256) die("names too long");
    raise_file_limit();
    committer_t *all = calloc((size_t)count, sizeof *all);
    int poller = epoll_create1(0);
    int64_t deadline = now_ns() + COORDINATOR_LIMIT_NS;
    for (long i = 0; i < count; i++) {
        char group[300];
        snprintf(group, sizeof group, "%s-%ld", name, i);
        all[i].partitions = partitions;
        build(&all[i], topic, group);
        all[i].outgoing = malloc(window * all[i].frame.size);
        for (uint32_t k = 0; k < window; k++)
            memcpy(all[i].outgoing + (size_t)k * all[i].frame.size, all[i].frame.bytes, all[i].frame.size);
        all[i].fd = connect_to(bootstrap);
        find_coordinator(all[i].fd, group);
        commit_first(&all[i], deadline);
        struct epoll_event interest = {.events = EPOLLIN, .data.u64 = (uint64_t)i};
        if (epoll_ctl(poller, EPOLL_CTL_ADD, all[i].fd, &interest) != 0) die("epoll: %s", strerror(errno));
    }

    for (long i = 0; i < count; i++) send_next(&all[i], window);
    int64_t start = now_ns(), measured_from = 0, now = start;
    int64_t end = start + (int64_t)((warmup + seconds) * 1e9);
    double counted = 0, cpu_before = 0;
    for (; now < end; now = now_ns()) {
        if (measured_from == 0 && now - start >= (int64_t)(warmup * 1e9)) {
            measured_from = now;
            counted = 0;
            cpu_before = own_cpu_seconds();
        }
        struct epoll_event events[EVENTS];
        int ready = epoll_wait(poller, events, EVENTS, 100);
        for (int i = 0; i < ready; i++) {
            committer_t *one = &all[events[i].data.u64];
            uint32_t answers = receive_some(one);
            if (answers) send_next(one, answers);
            counted += answers;
        }
    }
    double took = (double)(now - measured_from) / 1e9;
    printf("{\"commits\": %.0f, \"seconds\": %.3f, \"commits_per_s\": %.0f, \"offsets_per_s\": %.0f, "
           "\"connections\": %ld, \"window\": %u, \"client_cpu_share\": %.2f}\n",
           counted, took, counted / took, counted * (double)partitions / took, count, window,
           (own_cpu_seconds() - cpu_before) / took);
    return 0;
}
