/* Produce requests by hand: what a broker costs when no client library stands in between.
 *
 * A Produce v9 request with one batch. Everything but the correlation id is the same in each, so a driver
 * builds it once and patches four bytes.
 *
 *   size i32 | key 0 i16 | version 9 i16 | correlation id i32 | client id string | tags
 *   transactional id 0 | acks i16 | timeout i32 | topics 1+1 | name | partitions 1+1 | index i32 |
 *   records length+1 | record batch v2 | tags | tags | tags
 */
#ifndef PENSTOCK_LOAD_RAW_H
#define PENSTOCK_LOAD_RAW_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "wire.h"

typedef struct {
    unsigned char *bytes;
    size_t size;
    /* Where the error code stands in the answer, counted from its size field. */
    size_t error_offset;
} frame_t;

frame_t produce_frame(const char *topic, int partition, int acks, size_t value_bytes, int records);

/* The answer at `at` (with its size field) must carry no error and the correlation id; ends the program if not. */
void check_answer(const unsigned char *at, const frame_t *frame, uint32_t correlation_id);

#endif
