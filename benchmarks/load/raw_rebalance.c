/* Members of one classic group on bare sockets: how long a broker takes to bring all of them into one generation.
 *
 * Two times are taken for each of `--groups` groups, one group after the other:
 *   join   all members ask to join at once, until everyone has its part of a plan for all of them;
 *   again  one member leaves, the others settle without it, and it joins anew, until everyone is settled again.
 * Members do as client libraries do (id first, leader makes the plan, rejoin when told to), except that they never rest:
 * whoever is settled asks for news (Heartbeat) at once when something happened, and every `--heartbeat-ms` after that.
 * In the end each partition has one owner, or the run is void.
 *
 * --bootstrap H:P --topic T [--members 100] [--groups 10] [--warmup-groups 2] [--heartbeat-ms 5] [--name rebalance]
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common.h"
#include "wire.h"

#define JOIN_GROUP 11
#define HEARTBEAT 12
#define LEAVE_GROUP 13
#define SYNC_GROUP 14
#define REBALANCE_IN_PROGRESS 27
#define ILLEGAL_GENERATION 22
#define MEMBER_ID_REQUIRED 79

#define MEMBERS_MAX 1000
#define ID_BYTES 128
#define BLOB_BYTES 300
#define BUFFER_BYTES (MEMBERS_MAX * (ID_BYTES + BLOB_BYTES))
#define EVENTS 256
#define SETTLE_LIMIT_NS 60000000000LL
#define PROTOCOL_TYPE "consumer"
#define PROTOCOL "range"

typedef enum { OUT, JOINING, SYNCING, SETTLED, LEAVING } state_t;

typedef struct {
    int fd;
    state_t state;
    int asked; /* the api key of the request in flight, 0 for none */
    char id[ID_BYTES];
    int generation;
    long partition;
    int64_t heartbeat_ns; /* when to ask for news */
    unsigned char *received;
    size_t received_size, capacity;
} member_t;

typedef struct {
    const char *topic;
    char name[128];
    member_t *members;
    long count;   /* members there are */
    long wanted;  /* members the generation must have */
    long planned; /* members in the leader's latest plan */
    int generation;
    int64_t heartbeat_every_ns;
    int quiet; /* nobody asks for news */
    long requests, join_requests;
    int poller;
    writer_t out;
} group_t;

static void send_request(group_t *group, member_t *member, int api_key) {
    end_request(&group->out);
    send_all(member->fd, group->out.bytes, group->out.size);
    member->asked = api_key;
    group->requests++;
}

/* The consumer protocol's subscription, version 0: topics, no user data. */
static void put_subscription(writer_t *to, const char *topic) {
    put_uvarint(to, 2 + 4 + 2 + strlen(topic) + 4 + 1);
    put_int(to, 0, 2);
    put_int(to, 1, 4);
    put_int(to, strlen(topic), 2);
    put(to, topic, strlen(topic));
    put_int(to, UINT32_MAX, 4);
}

/* Its assignment: one partition of the topic. */
static void put_assignment(writer_t *to, const char *topic, long partition) {
    put_uvarint(to, 2 + 4 + 2 + strlen(topic) + 4 + 4 + 4 + 1);
    put_int(to, 0, 2);
    put_int(to, 1, 4);
    put_int(to, strlen(topic), 2);
    put(to, topic, strlen(topic));
    put_int(to, 1, 4);
    put_int(to, (uint64_t)partition, 4);
    put_int(to, UINT32_MAX, 4);
}

static void ask_to_join(group_t *group, member_t *member) {
    writer_t *out = &group->out;
    begin_request(out, JOIN_GROUP, 9);
    put_text(out, group->name);
    put_int(out, 30000, 4); /* session */
    put_int(out, 60000, 4); /* rebalance */
    put_text(out, member->id);
    put_uvarint(out, 0);
    put_text(out, PROTOCOL_TYPE);
    put_uvarint(out, 1 + 1);
    put_text(out, PROTOCOL);
    put_subscription(out, group->topic);
    put_uvarint(out, 0);
    put_uvarint(out, 0); /* no reason */
    put_uvarint(out, 0);
    member->state = JOINING;
    send_request(group, member, JOIN_GROUP);
}

/* Begins a SyncGroup; the plan's entries follow. */
static void begin_sync(group_t *group, member_t *member, uint64_t entries) {
    writer_t *out = &group->out;
    begin_request(out, SYNC_GROUP, 5);
    put_text(out, group->name);
    put_int(out, (uint64_t)member->generation, 4);
    put_text(out, member->id);
    put_uvarint(out, 0);
    put_text(out, PROTOCOL_TYPE);
    put_text(out, PROTOCOL);
    put_uvarint(out, entries + 1);
}

static void ask_for_news(group_t *group, member_t *member) {
    begin_request(&group->out, HEARTBEAT, 4);
    put_text(&group->out, group->name);
    put_int(&group->out, (uint64_t)member->generation, 4);
    put_text(&group->out, member->id);
    put_uvarint(&group->out, 0);
    put_uvarint(&group->out, 0);
    send_request(group, member, HEARTBEAT);
}

static void ask_to_leave(group_t *group, member_t *member) {
    begin_request(&group->out, LEAVE_GROUP, 5);
    put_text(&group->out, group->name);
    put_uvarint(&group->out, 1 + 1);
    put_text(&group->out, member->id);
    put_uvarint(&group->out, 0);
    put_uvarint(&group->out, 0);
    put_uvarint(&group->out, 0);
    put_uvarint(&group->out, 0);
    member->state = LEAVING;
    send_request(group, member, LEAVE_GROUP);
}

static void joined(group_t *group, member_t *member, reader_t *answer, int error) {
    char leader[ID_BYTES], other[ID_BYTES];
    member->generation = (int)take_int(answer, 4);
    take_text(answer, NULL, 0); /* protocol type */
    take_text(answer, NULL, 0); /* protocol */
    take_text(answer, leader, sizeof leader);
    take_int(answer, 1); /* skip assignment */
    take_text(answer, member->id, sizeof member->id);
    if (error == MEMBER_ID_REQUIRED || is_coordinator_away(error)) {
        ask_to_join(group, member);
        return;
    }
    if (error != 0) die("a join was refused with error %d", error);
    member->state = SYNCING;
    writer_t *out = &group->out;
    if (strcmp(leader, member->id) != 0) {
        begin_sync(group, member, 0);
    } else {
        uint64_t others = take_uvarint(answer) - 1;
        if (others > MEMBERS_MAX) die("a group of %zu members", (size_t)others);
        begin_sync(group, member, others);
        for (uint64_t i = 0; i < others; i++) {
            take_text(answer, other, sizeof other);
            take_text(answer, NULL, 0);
            take_text(answer, NULL, 0);
            take_uvarint(answer);
            put_text(out, other);
            put_assignment(out, group->topic, (long)i);
            put_uvarint(out, 0);
        }
        group->planned = (long)others;
        group->generation = member->generation;
    }
    put_uvarint(out, 0);
    send_request(group, member, SYNC_GROUP);
}

static void synced(group_t *group, member_t *member, reader_t *answer, int error) {
    if (error == REBALANCE_IN_PROGRESS || error == ILLEGAL_GENERATION) {
        ask_to_join(group, member);
        return;
    }
    if (error != 0) die("a sync was refused with error %d", error);
    take_text(answer, NULL, 0);
    take_text(answer, NULL, 0);
    size_t length = take_uvarint(answer) - 1;
    if (length < 8 || answer->size - answer->at < length) die("a member without a part of the plan");
    member->partition = (long)read_u32(answer->bytes + answer->at + length - 8);
    member->state = SETTLED;
    member->heartbeat_ns = now_ns() + group->heartbeat_every_ns;
}

static void answered(group_t *group, member_t *member, reader_t answer) {
    int asked = member->asked;
    member->asked = 0;
    take_int(&answer, 4); /* throttle */
    int error = (int)take_int(&answer, 2);
    if (asked == JOIN_GROUP) joined(group, member, &answer, error);
    else if (asked == SYNC_GROUP) synced(group, member, &answer, error);
    else if (asked == LEAVE_GROUP && error == 0) member->state = OUT;
    else if (asked == HEARTBEAT && error == REBALANCE_IN_PROGRESS) ask_to_join(group, member);
    else if (asked == HEARTBEAT && error == 0) member->heartbeat_ns = now_ns() + group->heartbeat_every_ns;
    else die("request %d was refused with error %d", asked, error);
}

static void receive(group_t *group, member_t *member) {
    if (member->capacity - member->received_size < 4096) {
        member->capacity = member->capacity ? 2 * member->capacity : 8192;
        member->received = realloc(member->received, member->capacity);
        if (member->received == NULL) die("out of memory");
    }
    ssize_t part = recv(member->fd, member->received + member->received_size,
                        member->capacity - member->received_size, MSG_DONTWAIT);
    if (part < 0 && errno == EAGAIN) return;
    if (part <= 0) die("the broker closed a connection");
    member->received_size += (size_t)part;
    if (member->received_size < 4) return;
    size_t whole = 4 + (size_t)read_u32(member->received);
    if (whole > BUFFER_BYTES) die("answer of %zu bytes", whole);
    if (member->received_size < whole) return;
    member->received_size -= whole;
    answered(group, member, (reader_t){.bytes = member->received, .size = whole, .at = ANSWER_BODY_OFFSET});
}

/* Everybody who takes part is settled in the generation that was planned for all of them. */
static int is_settled(const group_t *group) {
    if (group->planned != group->wanted) return 0;
    long settled = 0;
    for (long i = 0; i < group->count; i++) {
        const member_t *member = &group->members[i];
        if (member->state == OUT) continue;
        if (member->state != SETTLED || member->generation != group->generation) return 0;
        settled++;
    }
    return settled == group->wanted;
}

/* Whoever is settled asks for news now. */
static void stir(group_t *group) {
    group->quiet = 0;
    for (long i = 0; i < group->count; i++) group->members[i].heartbeat_ns = 0;
}

static void turn(group_t *group) {
    struct epoll_event events[EVENTS];
    int ready = epoll_wait(group->poller, events, EVENTS, 1);
    for (int i = 0; i < ready; i++) receive(group, &group->members[events[i].data.u64]);
    int64_t now = now_ns();
    for (long i = 0; i < group->count && !group->quiet; i++) {
        member_t *member = &group->members[i];
        if (member->state == SETTLED && member->asked == 0 && member->heartbeat_ns <= now) ask_for_news(group, member);
    }
}

static void settle(group_t *group, long wanted) {
    int64_t deadline = now_ns() + SETTLE_LIMIT_NS;
    char *owned = calloc((size_t)group->count, 1);
    group->wanted = wanted;
    while (!is_settled(group)) {
        turn(group);
        if (now_ns() > deadline) die("%ld members did not settle", wanted);
    }
    for (long i = 0; i < group->count; i++) {
        const member_t *member = &group->members[i];
        if (member->state == OUT) continue;
        if (member->partition >= wanted || owned[member->partition]++) die("partition %ld twice", member->partition);
    }
    free(owned);
}

/* Before anything is timed: requests that are under way would be answered in the middle of it. */
static void rest(group_t *group) {
    group->quiet = 1;
    for (long i = 0; i < group->count; i++)
        while (group->members[i].asked) turn(group);
}

static void leave_all(group_t *group) {
    rest(group);
    for (long i = 0; i < group->count; i++) {
        ask_to_leave(group, &group->members[i]);
        while (group->members[i].state == LEAVING) turn(group);
        close(group->members[i].fd);
        free(group->members[i].received);
    }
}

static void run_group(group_t *group, const char *bootstrap, int64_t *join_ns, int64_t *again_ns) {
    group->planned = 0;
    group->quiet = 0;
    memset(group->members, 0, (size_t)group->count * sizeof *group->members);
    for (long i = 0; i < group->count; i++) {
        group->members[i].fd = connect_to(bootstrap);
        find_coordinator(group->members[i].fd, group->name); /* as clients do; and the connection is accepted */
        struct epoll_event interest = {.events = EPOLLIN, .data.u64 = (uint64_t)i};
        if (epoll_ctl(group->poller, EPOLL_CTL_ADD, group->members[i].fd, &interest) != 0)
            die("epoll: %s", strerror(errno));
    }
    group->requests = 0;
    int64_t began = now_ns();
    for (long i = 0; i < group->count; i++) ask_to_join(group, &group->members[i]);
    settle(group, group->count);
    *join_ns = now_ns() - began;
    group->join_requests += group->requests;

    rest(group);
    member_t *leaver = &group->members[group->count / 2];
    began = now_ns();
    ask_to_leave(group, leaver);
    while (leaver->state == LEAVING) turn(group);
    stir(group);
    settle(group, group->count - 1);
    leaver->id[0] = 0;
    ask_to_join(group, leaver);
    stir(group);
    settle(group, group->count);
    *again_ns = now_ns() - began;
    leave_all(group);
}

int main(int argc, char **argv) {
    const char *bootstrap = arg_required(argc, argv, "--bootstrap"), *name = arg_text(argc, argv, "--name", "rebalance");
    long groups = (long)arg_number(argc, argv, "--groups", 10), warmup = (long)arg_number(argc, argv, "--warmup-groups", 2);
    group_t group = {.topic = arg_required(argc, argv, "--topic"),
                     .count = (long)arg_number(argc, argv, "--members", 100),
                     .heartbeat_every_ns = (int64_t)(1e6 * arg_number(argc, argv, "--heartbeat-ms", 5)),
                     .poller = epoll_create1(0),
                     .out = {.bytes = malloc(BUFFER_BYTES)}};
    if (group.count < 2 || group.count > MEMBERS_MAX) die("2 to %d members", MEMBERS_MAX);
    if (strlen(group.topic) > 200 || strlen(name) > 100) die("names too long");
    raise_file_limit();
    group.members = calloc((size_t)group.count, sizeof *group.members);
    samples_t joins = {0}, agains = {0};
    double cpu_before = own_cpu_seconds();
    int64_t start = now_ns();
    for (long i = -warmup; i < groups; i++) {
        int64_t join_ns, again_ns;
        snprintf(group.name, sizeof group.name, "%s-%ld", name, i + warmup);
        run_group(&group, bootstrap, &join_ns, &again_ns);
        if (i < 0) {
            group.join_requests = 0;
            continue;
        }
        samples_add(&joins, join_ns);
        samples_add(&agains, again_ns);
    }
    samples_sort(&joins);
    samples_sort(&agains);
    printf("{\"members\": %ld, \"groups\": %ld, \"join_ms\": %.2f, \"join_worst_ms\": %.2f, \"again_ms\": %.2f, "
           "\"again_worst_ms\": %.2f, \"join_requests\": %.0f, \"client_cpu_share\": %.2f}\n",
           group.count, groups, samples_percentile_us(&joins, 50) / 1e3, samples_percentile_us(&joins, 100) / 1e3,
           samples_percentile_us(&agains, 50) / 1e3, samples_percentile_us(&agains, 100) / 1e3,
           (double)group.join_requests / (double)groups,
           (own_cpu_seconds() - cpu_before) / ((double)(now_ns() - start) / 1e9));
    return 0;
}
