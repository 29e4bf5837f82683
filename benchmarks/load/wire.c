#include "wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common.h"

#define CLIENT_ID "raw"
#define FIND_COORDINATOR 10

void put(writer_t *to, const void *bytes, size_t size) {
    memcpy(to->bytes + to->size, bytes, size);
    to->size += size;
}

void put_int(writer_t *to, uint64_t value, int width) {
    for (int shift = 8 * (width - 1); shift >= 0; shift -= 8) to->bytes[to->size++] = (unsigned char)(value >> shift);
}

void put_uvarint(writer_t *to, uint64_t value) {
    for (; value >= 0x80; value >>= 7) to->bytes[to->size++] = (unsigned char)(value | 0x80);
    to->bytes[to->size++] = (unsigned char)value;
}

void put_varint(writer_t *to, int64_t value) {
    put_uvarint(to, ((uint64_t)value << 1) ^ (uint64_t)(value >> 63));
}

void put_text(writer_t *to, const char *text) {
    put_uvarint(to, strlen(text) + 1);
    put(to, text, strlen(text));
}

void begin_request(writer_t *to, int api_key, int version) {
    to->size = 4;
    put_int(to, (uint64_t)api_key, 2);
    put_int(to, (uint64_t)version, 2);
    put_int(to, 0, 4);
    put_int(to, strlen(CLIENT_ID), 2);
    put(to, CLIENT_ID, strlen(CLIENT_ID));
    put_uvarint(to, 0);
}

void end_request(writer_t *to) {
    writer_t size = {.bytes = to->bytes};
    put_int(&size, to->size - 4, 4);
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

static void need(const reader_t *from, size_t size) {
    if (from->size - from->at < size) die("an answer ends too early");
}

int64_t take_int(reader_t *from, int width) {
    need(from, (size_t)width);
    int64_t value = (int8_t)from->bytes[from->at++];
    for (int i = 1; i < width; i++) value = (int64_t)((uint64_t)value << 8 | from->bytes[from->at++]);
    return value;
}

uint64_t take_uvarint(reader_t *from) {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        need(from, 1);
        unsigned char byte = from->bytes[from->at++];
        value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) return value;
    }
}

size_t take_text(reader_t *from, char *text, size_t size) {
    uint64_t length = take_uvarint(from);
    length = length ? length - 1 : 0;
    need(from, length);
    if (text != NULL) {
        if (length >= size) die("a text of %zu bytes in an answer", (size_t)length);
        memcpy(text, from->bytes + from->at, length);
        text[length] = 0;
    }
    from->at += length;
    return length;
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

reader_t receive_answer(int fd, unsigned char *buffer, size_t size) {
    receive_all(fd, buffer, 4);
    size_t length = read_u32(buffer);
    if (length < 5 || length > size - 4) die("answer of %zu bytes", length);
    receive_all(fd, buffer + 4, length);
    return (reader_t){.bytes = buffer, .size = 4 + length, .at = ANSWER_BODY_OFFSET};
}

void find_coordinator(int fd, const char *group) {
    unsigned char buffer[ANSWER_MAX_BYTES];
    writer_t request = {.bytes = buffer};
    int64_t deadline = now_ns() + COORDINATOR_LIMIT_NS;
    for (int error = -1; error != 0;) {
        begin_request(&request, FIND_COORDINATOR, 3);
        put_text(&request, group);
        put_int(&request, 0, 1); /* a group */
        put_uvarint(&request, 0);
        end_request(&request);
        send_all(fd, request.bytes, request.size);
        reader_t answer = receive_answer(fd, buffer, sizeof buffer);
        take_int(&answer, 4); /* throttle */
        error = (int)take_int(&answer, 2);
        if (error != 0) wait_for_coordinator(error, deadline);
    }
}

void wait_for_coordinator(int error, int64_t deadline_ns) {
    if (!is_coordinator_away(error)) die("no coordinator: error %d", error);
    if (now_ns() > deadline_ns) die("no coordinator in time: error %d", error);
    sleep_until_ns(now_ns() + 20000000);
}

int is_coordinator_away(int error) { return error >= 14 && error <= 16; }
