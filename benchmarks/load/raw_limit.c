/* The machine's own limit: bytes copied from a socket to a file by the simplest possible loop.
 *
 * A child process writes to a loopback connection; the parent receives into one buffer and writes it out. No
 * protocol, no checks, no answers: no broker can do less.
 *
 * --file PATH [--bytes 2e9] [--buffer 262144]
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common.h"
#include "raw.h"

static void send_bytes(const char *bootstrap, double total, size_t buffer_bytes) {
    int fd = connect_to(bootstrap);
    char *buffer = random_payload(buffer_bytes);
    for (double sent = 0; sent < total; sent += (double)buffer_bytes) send_all(fd, buffer, buffer_bytes);
    close(fd);
}

int main(int argc, char **argv) {
    double total = arg_number(argc, argv, "--bytes", 2e9);
    size_t buffer_bytes = (size_t)arg_number(argc, argv, "--buffer", 262144);
    const char *path = arg_required(argc, argv, "--file");
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    if (bind(listener, (struct sockaddr *)&address, length) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &length) != 0)
        die("cannot listen: %s", strerror(errno));
    char bootstrap[32];
    snprintf(bootstrap, sizeof bootstrap, "127.0.0.1:%d", ntohs(address.sin_port));
    pid_t child = fork();
    if (child == 0) {
        send_bytes(bootstrap, total, buffer_bytes);
        _exit(0);
    }
    int fd = accept(listener, NULL, NULL);
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || file < 0) die("cannot open: %s", strerror(errno));
    char *buffer = malloc(buffer_bytes);
    double copied = 0, cpu = own_cpu_seconds();
    int64_t start = now_ns();
    for (ssize_t part; (part = recv(fd, buffer, buffer_bytes, 0)) > 0; copied += (double)part)
        if (write(file, buffer, (size_t)part) != part) die("write: %s", strerror(errno));
    double seconds = (double)(now_ns() - start) / 1e9;
    cpu = own_cpu_seconds() - cpu;
    waitpid(child, NULL, 0);
    unlink(path);
    printf("{\"bytes\": %.0f, \"seconds\": %.4f, \"mb_per_s\": %.2f, \"cpu_s_per_gb\": %.3f}\n", copied, seconds,
           copied / seconds / 1e6, cpu / (copied / 1e9));
    return 0;
}
