/* What every load generator shares: arguments, clocks, percentiles, one JSON line of results. */
#ifndef PENSTOCK_LOAD_COMMON_H
#define PENSTOCK_LOAD_COMMON_H

#include <stddef.h>
#include <stdint.h>

/* Arguments are `--name value` pairs. A missing one without a default ends the program. */
const char *arg_text(int argc, char **argv, const char *name, const char *fallback);
double arg_number(int argc, char **argv, const char *name, double fallback);
const char *arg_required(int argc, char **argv, const char *name);

__attribute__((noreturn, format(printf, 1, 2))) void die(const char *format, ...);

int64_t now_ns(void);
/* CPU seconds that this process has used: shows when the client, not the broker, is the limit. */
double own_cpu_seconds(void);
void sleep_until_ns(int64_t when_ns);

/* Latencies in nanoseconds, kept whole: no histogram error in the percentiles. */
typedef struct {
    int64_t *values;
    size_t count;
    size_t capacity;
} samples_t;

void samples_add(samples_t *samples, int64_t value_ns);
void samples_sort(samples_t *samples);
/* After samples_sort; in microseconds. */
double samples_percentile_us(const samples_t *samples, double percent);
/* Prints `"p50_us": …, "p90_us": …, "p99_us": …, "p999_us": …, "max_us": …` */
void samples_print(samples_t *samples);

/* A payload that does not compress to nothing; caller owns it. */
char *random_payload(size_t size_bytes);

/* As many file descriptors as the system lets us have. */
void raise_file_limit(void);

#endif
