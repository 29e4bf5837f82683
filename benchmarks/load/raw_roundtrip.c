/* Round trip of one-message Produce requests, one in flight.
 *
 * --bootstrap H:P --topic T [--requests 20000] [--warmup 2000] [--size 100] [--acks 1]
 * [--interval-ms 0]  a pause between requests makes it a probe beside other load; SIGINT ends it
 */
#include <signal.h>
#include <stdio.h>

#include "common.h"
#include "raw.h"

static volatile sig_atomic_t interrupted;

static void on_interrupt(int number) {
    (void)number;
    interrupted = 1;
}

int main(int argc, char **argv) {
    long requests = (long)arg_number(argc, argv, "--requests", 20000);
    long warmup = (long)arg_number(argc, argv, "--warmup", 2000);
    double interval_ms = arg_number(argc, argv, "--interval-ms", 0);
    frame_t frame = produce_frame(arg_required(argc, argv, "--topic"), 0, (int)arg_number(argc, argv, "--acks", 1),
                                  (size_t)arg_number(argc, argv, "--size", 100), 1);
    /* Without SA_RESTART a SIGINT would break a receive in the middle of an answer. */
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART};
    sigaction(SIGINT, &action, NULL);
    int fd = connect_to(arg_required(argc, argv, "--bootstrap"));
    unsigned char answer[ANSWER_MAX_BYTES];
    samples_t latencies = {0};

    int64_t start = now_ns();
    for (long i = 0; i < warmup + requests && !interrupted; i++) {
        frame_set_correlation(frame.bytes, (uint32_t)i);
        int64_t sent = now_ns();
        send_all(fd, frame.bytes, frame.size);
        receive_all(fd, answer, 4);
        if (read_u32(answer) > sizeof answer - 4) die("answer of %u bytes", read_u32(answer));
        receive_all(fd, answer + 4, read_u32(answer));
        if (i >= warmup) samples_add(&latencies, now_ns() - sent);
        check_answer(answer, &frame, (uint32_t)i);
        if (interval_ms > 0) sleep_until_ns(now_ns() + (int64_t)(interval_ms * 1e6));
    }
    printf("{\"requests\": %zu, \"seconds\": %.3f, ", latencies.count, (double)(now_ns() - start) / 1e9);
    samples_print(&latencies);
    printf("}\n");
    return 0;
}
