/* The Kafka protocol by hand: what every driver on bare sockets shares.
 *
 * A request, as all of them are here (flexible versions):
 *   size i32 | api key i16 | version i16 | correlation id i32 | client id string | tags | body
 * and its answer:
 *   size i32 | correlation id i32 | tags | body
 */
#ifndef PENSTOCK_LOAD_WIRE_H
#define PENSTOCK_LOAD_WIRE_H

#include <stddef.h>
#include <stdint.h>

#define CORRELATION_OFFSET 8
#define ANSWER_BODY_OFFSET 9
#define ANSWER_MAX_BYTES 1024
#define COORDINATOR_LIMIT_NS 60000000000LL

/* Where bytes are put; whoever makes one sees to it that they fit. */
typedef struct {
    unsigned char *bytes;
    size_t size;
} writer_t;

void put(writer_t *to, const void *bytes, size_t size);
void put_int(writer_t *to, uint64_t value, int width);
void put_uvarint(writer_t *to, uint64_t value);
void put_varint(writer_t *to, int64_t value);
void put_text(writer_t *to, const char *text);
/* Everything before the body, in a writer that begins anew. */
void begin_request(writer_t *to, int api_key, int version);
void end_request(writer_t *to);
void frame_set_correlation(unsigned char *frame, uint32_t correlation_id);

/* Where bytes are taken from; an answer that ends too early ends the program. */
typedef struct {
    const unsigned char *bytes;
    size_t size, at;
} reader_t;

int64_t take_int(reader_t *from, int width);
uint64_t take_uvarint(reader_t *from);
/* A text or bytes; `text` may be NULL. The number of bytes. */
size_t take_text(reader_t *from, char *text, size_t size);
uint32_t read_u32(const unsigned char *at);
uint16_t read_u16(const unsigned char *at);

/* A connected TCP socket without Nagle. */
int connect_to(const char *bootstrap);
void send_all(int fd, const void *bytes, size_t size);
void receive_all(int fd, void *bytes, size_t size);
/* A whole answer, read up to its body. */
reader_t receive_answer(int fd, unsigned char *buffer, size_t size);

/* Ask until the group has a coordinator. */
void find_coordinator(int fd, const char *group);
/* Whether the error says that it may be there in a moment. */
int is_coordinator_away(int error);
/* Rest a little after such an error; another one, or the deadline, ends the program. */
void wait_for_coordinator(int error, int64_t deadline_ns);

#endif
