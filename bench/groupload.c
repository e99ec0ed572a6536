/* A work queue of Poe's: CONNS members of one group lease LIMIT messages of topic t0 each time, and
 * acknowledge them with the next request. Prints messages and leases per second as JSON, and the
 * server's answers' p50 and p99.
 *
 * usage: groupload HOST PORT CONNS LIMIT SECONDS
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { REPLY_MAX = 1 << 24, TIMES_MAX = 1 << 22 };

struct member {
    pthread_t thread;
    int number;
    long messages, leases;
    float *times_us;
};

static const char *host;
static int port, limit;
static double until;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static int dial(void) {
    int s = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, host, &address.sin_addr);
    if (connect(s, (void *)&address, sizeof address)) { perror("connect"); exit(1); }
    setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return s;
}

/* Receives one frame into `reply`, less its length; returns its type. */
static int receive(int s, unsigned char *reply) {
    size_t have = 0, need = 6;
    while (have < need) {
        ssize_t n = recv(s, reply + have, need - have, 0);
        if (n <= 0) { fprintf(stderr, "the server closed the connection\n"); exit(1); }
        have += n;
        if (have == 6) {
            need = 4 + ((size_t)reply[0] << 24 | reply[1] << 16 | reply[2] << 8 | reply[3]);
            if (need > REPLY_MAX) exit(1);
        }
    }
    return reply[4] << 8 | reply[5];
}

static unsigned char *text(unsigned char *at, const char *value) {
    *at++ = 0xa0 | strlen(value);
    memcpy(at, value, strlen(value));
    return at + strlen(value);
}

static unsigned char *number(unsigned char *at, uint64_t value) {
    *at++ = 0xcf;
    for (int shift = 56; shift >= 0; shift -= 8) *at++ = value >> shift;
    return at;
}

static unsigned char *id(unsigned char *at, int member) {
    *at++ = 0xc4;
    *at++ = 16;
    memset(at, 1 + member, 16);
    return at + 16;
}

static void send_frame(int s, unsigned char *frame, unsigned char *end, int type) {
    uint32_t size = end - frame - 4;
    frame[0] = size >> 24, frame[1] = size >> 16, frame[2] = size >> 8, frame[3] = size;
    frame[4] = type >> 8, frame[5] = type;
    if (send(s, frame, end - frame, 0) != end - frame) exit(1);
}

static void join(int s, int member, unsigned char *reply) {
    unsigned char frame[512], *at = frame + 6;
    *at++ = 0x86;
    at = text(text(at, "op"), "group_join");
    at = text(at, "id");
    *at++ = 1;
    at = text(text(at, "group"), "bench");
    at = id(text(at, "member"), member);
    at = text(text(at, "mode"), "shared");
    at = text(at, "topics");
    *at++ = 0x91;
    at = text(at, "t0");
    send_frame(s, frame, at, 16);
    if (receive(s, reply) != 17) { fprintf(stderr, "no member: %s\n", reply + 6); exit(1); }
}

static uint64_t lease_of(const unsigned char *at) {
    static const int sizes[] = {1, 2, 4, 8};
    if (*at < 0x80) return *at;
    uint64_t value = 0;
    for (int i = 1; i <= sizes[*at - 0xcc]; i++) value = value << 8 | at[i];
    return value;
}

static void *work(void *argument) {
    struct member *self = argument;
    unsigned char *reply = malloc(REPLY_MAX), frame[256];
    int s = dial();
    join(s, self->number, reply);
    uint64_t held = 0;
    for (double begin = now(); begin < until; begin = now()) {
        unsigned char *at = frame + 6;
        *at++ = 0x97;
        at = id(text(at, "bench"), self->number);
        at = number(number(at, limit), 1 << 23);
        *at++ = 0;
        *at++ = held ? 0x91 : 0x90;
        if (held) {
            *at++ = 0x92;
            at = number(at, held);
            *at++ = 0xc0;
        }
        *at++ = 0x90;
        send_frame(s, frame, at, 7);
        if (receive(s, reply) != 8) { fprintf(stderr, "no lease: %s\n", reply + 6); exit(1); }
        uint32_t head = reply[6] << 24 | reply[7] << 16 | reply[8] << 8 | reply[9];
        held = lease_of(reply + 11);
        if (!held) { fprintf(stderr, "the topic is read; put more onto it\n"); break; }
        const unsigned char *count = reply + 10 + head;
        self->messages += (uint32_t)count[0] << 24 | count[1] << 16 | count[2] << 8 | count[3];
        if (self->leases < TIMES_MAX) self->times_us[self->leases] = (now() - begin) * 1e6;
        self->leases++;
    }
    close(s);
    return 0;
}

static int by_size(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

int main(int count, char **arguments) {
    if (count != 6) { fprintf(stderr, "usage: groupload HOST PORT CONNS LIMIT SECONDS\n"); return 2; }
    host = arguments[1], port = atoi(arguments[2]), limit = atoi(arguments[4]);
    int members_count = atoi(arguments[3]);
    double begin = now();
    until = begin + atof(arguments[5]);
    struct member *members = calloc(members_count, sizeof *members);
    for (int i = 0; i < members_count; i++) {
        members[i].number = i;
        members[i].times_us = malloc(TIMES_MAX * sizeof(float));
        pthread_create(&members[i].thread, 0, work, &members[i]);
    }
    long messages = 0, leases = 0, times = 0;
    float *all = malloc((size_t)members_count * TIMES_MAX * sizeof(float));
    for (int i = 0; i < members_count; i++) {
        pthread_join(members[i].thread, 0);
        messages += members[i].messages, leases += members[i].leases;
        long known = members[i].leases < TIMES_MAX ? members[i].leases : TIMES_MAX;
        memcpy(all + times, members[i].times_us, known * sizeof(float));
        times += known;
    }
    double seconds = now() - begin;
    qsort(all, times, sizeof(float), by_size);
    printf("{\"msgs_s\":%.0f,\"calls_s\":%.0f,\"p50_us\":%.0f,\"p99_us\":%.0f}\n", messages / seconds,
           leases / seconds, times ? all[times / 2] : 0, times ? all[times * 99 / 100] : 0);
    return 0;
}
