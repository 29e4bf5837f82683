/* Many open connections, each sending one message a second: what idle-ish clients cost a broker.
 *
 * Connections start evenly spread over the second. A connection whose answer is late does not send the next
 * message before it came; that is counted as late, never as lost.
 *
 * --bootstrap H:P --topic T --partitions N [--connections 10000] [--seconds 30] [--size 100] [--connects-per-s 2000]
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common.h"
#include "raw.h"

#define PERIOD_NS 1000000000LL
#define DRAIN_LIMIT_NS (30 * PERIOD_NS)
#define EVENTS 512

typedef struct {
    int fd;
    int64_t sent_ns; /* 0: nothing in flight */
    uint32_t correlation_id;
    size_t received;
    unsigned char answer[192];
} connection_t;

typedef struct {
    connection_t *all;
    frame_t *frames; /* one per partition */
    long count, partitions;
    long sent, acknowledged, late, dropped, refused;
    int poller;
    samples_t latencies;
} crowd_t;

static void drop(crowd_t *crowd, connection_t *connection) {
    close(connection->fd);
    connection->fd = -1;
    connection->sent_ns = 0;
    crowd->dropped++;
}

static void open_all(crowd_t *crowd, const char *bootstrap, double connects_per_s) {
    int64_t start = now_ns();
    for (long i = 0; i < crowd->count; i++) {
        sleep_until_ns(start + (int64_t)((double)i * 1e9 / connects_per_s));
        crowd->all[i].fd = connect_to(bootstrap);
        struct epoll_event interest = {.events = EPOLLIN | EPOLLRDHUP, .data.u64 = (uint64_t)i};
        if (epoll_ctl(crowd->poller, EPOLL_CTL_ADD, crowd->all[i].fd, &interest) != 0)
            die("epoll: %s", strerror(errno));
    }
}

static void send_message(crowd_t *crowd, long index) {
    connection_t *connection = &crowd->all[index];
    if (connection->fd < 0) return;
    if (connection->sent_ns != 0) {
        crowd->late++;
        return;
    }
    frame_t *frame = &crowd->frames[index % crowd->partitions];
    frame_set_correlation(frame->bytes, ++connection->correlation_id);
    connection->sent_ns = now_ns();
    /* One small frame into an empty socket buffer goes in whole or not at all. */
    if (send(connection->fd, frame->bytes, frame->size, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)frame->size)
        drop(crowd, connection);
    else crowd->sent++;
}

static void receive(crowd_t *crowd, long index) {
    connection_t *connection = &crowd->all[index];
    if (connection->fd < 0) return;
    ssize_t part = recv(connection->fd, connection->answer + connection->received,
                        sizeof connection->answer - connection->received, MSG_DONTWAIT);
    if (part < 0 && errno == EAGAIN) return;
    if (part <= 0) {
        drop(crowd, connection);
        return;
    }
    connection->received += (size_t)part;
    if (connection->received < 4 || connection->received < 4 + (size_t)read_u32(connection->answer)) return;
    const frame_t *frame = &crowd->frames[index % crowd->partitions];
    if (read_u32(connection->answer + 4) != connection->correlation_id ||
        read_u16(connection->answer + frame->error_offset) != 0)
        crowd->refused++;
    else crowd->acknowledged++;
    samples_add(&crowd->latencies, now_ns() - connection->sent_ns);
    connection->sent_ns = 0;
    connection->received = 0;
}

static void receive_ready(crowd_t *crowd, int timeout_ms) {
    struct epoll_event events[EVENTS];
    int ready = epoll_wait(crowd->poller, events, EVENTS, timeout_ms);
    for (int i = 0; i < ready; i++) receive(crowd, (long)events[i].data.u64);
}

int main(int argc, char **argv) {
    crowd_t crowd = {.count = (long)arg_number(argc, argv, "--connections", 10000),
                     .partitions = (long)arg_number(argc, argv, "--partitions", 1)};
    double seconds = arg_number(argc, argv, "--seconds", 30);
    const char *topic = arg_required(argc, argv, "--topic");
    size_t size = (size_t)arg_number(argc, argv, "--size", 100);
    raise_file_limit();
    crowd.poller = epoll_create1(0);
    crowd.all = calloc((size_t)crowd.count, sizeof *crowd.all);
    crowd.frames = calloc((size_t)crowd.partitions, sizeof *crowd.frames);
    for (long i = 0; i < crowd.partitions; i++) crowd.frames[i] = produce_frame(topic, (int)i, 1, size, 1);
    int64_t opening = now_ns();
    open_all(&crowd, arg_required(argc, argv, "--bootstrap"), arg_number(argc, argv, "--connects-per-s", 2000));

    int64_t start = now_ns();
    long due_total = (long)(seconds * (double)crowd.count), next = 0;
    while (next < due_total) {
        int64_t now = now_ns();
        long due = (long)((double)(now - start) * (double)crowd.count / (double)PERIOD_NS);
        if (due > due_total) due = due_total;
        for (; next < due; next++) send_message(&crowd, next % crowd.count);
        receive_ready(&crowd, 1);
    }
    double took = (double)(now_ns() - start) / 1e9;
    int64_t deadline = now_ns() + DRAIN_LIMIT_NS;
    while (crowd.acknowledged + crowd.refused + crowd.dropped < crowd.sent && now_ns() < deadline)
        receive_ready(&crowd, 10);
    printf("{\"connections\": %ld, \"open_seconds\": %.2f, \"seconds\": %.2f, \"sent\": %ld, \"acknowledged\": %ld, "
           "\"late\": %ld, \"refused\": %ld, \"dropped\": %ld, ",
           crowd.count, (double)(start - opening) / 1e9, took, crowd.sent, crowd.acknowledged, crowd.late,
           crowd.refused, crowd.dropped);
    samples_print(&crowd.latencies);
    printf("}\n");
    return crowd.acknowledged == crowd.sent && crowd.dropped == 0 ? 0 : 1;
}
