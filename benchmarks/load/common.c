#define _GNU_SOURCE
#include "common.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

const char *arg_text(int argc, char **argv, const char *name, const char *fallback) {
    for (int i = 1; i + 1 < argc; i += 2)
        if (strcmp(argv[i], name) == 0) return argv[i + 1];
    return fallback;
}

const char *arg_required(int argc, char **argv, const char *name) {
    const char *text = arg_text(argc, argv, name, NULL);
    if (text == NULL) die("missing argument %s", name);
    return text;
}

double arg_number(int argc, char **argv, const char *name, double fallback) {
    const char *text = arg_text(argc, argv, name, NULL);
    return text == NULL ? fallback : strtod(text, NULL);
}

void die(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

double own_cpu_seconds(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

void sleep_until_ns(int64_t when_ns) {
    struct timespec when = {.tv_sec = when_ns / 1000000000, .tv_nsec = when_ns % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL) == EINTR) {
    }
}

void samples_add(samples_t *samples, int64_t value_ns) {
    if (samples->count == samples->capacity) {
        samples->capacity = samples->capacity ? samples->capacity * 2 : 4096;
        samples->values = realloc(samples->values, samples->capacity * sizeof *samples->values);
        if (samples->values == NULL) die("out of memory");
    }
    samples->values[samples->count++] = value_ns;
}

static int ascending(const void *left, const void *right) {
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

void samples_sort(samples_t *samples) {
    if (samples->count) qsort(samples->values, samples->count, sizeof *samples->values, ascending);
}

double samples_percentile_us(const samples_t *samples, double percent) {
    if (samples->count == 0) return 0;
    size_t rank = (size_t)((double)samples->count * percent / 100.0);
    if (rank >= samples->count) rank = samples->count - 1;
    return (double)samples->values[rank] / 1000.0;
}

void samples_print(samples_t *samples) {
    samples_sort(samples);
    printf("\"p50_us\": %.1f, \"p90_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f, \"max_us\": %.1f",
           samples_percentile_us(samples, 50), samples_percentile_us(samples, 90),
           samples_percentile_us(samples, 99), samples_percentile_us(samples, 99.9),
           samples_percentile_us(samples, 100));
}

char *random_payload(size_t size_bytes) {
    char *payload = malloc(size_bytes ? size_bytes : 1);
    if (payload == NULL) die("out of memory");
    uint64_t state = 88172645463325252ULL;
    for (size_t i = 0; i < size_bytes; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        payload[i] = (char)state;
    }
    return payload;
}

void raise_file_limit(void) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) die("cannot raise the file limit: %s", strerror(errno));
}
