/* What every load generator here shares with poeload.c: its arguments, one thread per connection, a
 * buffered receiver, and one JSON line as the result. A generator defines `prepare_connection`
 * and `run_connection`, and calls `run_load` from main.
 *
 * usage: PROGRAM HOST PORT MODE CONNS TOPICS BATCH SIZE SECONDS     (MODE write | read)
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define LATENCIES_MAX (1u << 20)
#define RECEIVE_BYTES (1u << 20)

static const char *host, *mode;
static int port, conns, topics, batch, size;
static double seconds;

typedef struct {
  int id, socket;
  uint64_t calls, msgs, bytes, errors, empty, latency_count;
  uint32_t *latency_us;
  char *buffer;         /* received and not yet consumed: buffer[head..tail) */
  size_t head, tail;
} Connection;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec / 1e9;
}

static int dial(void) {
  int s = socket(AF_INET, SOCK_STREAM, 0), one = 1;
  setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
  inet_pton(AF_INET, host, &a.sin_addr);
  if (connect(s, (void *)&a, sizeof a)) { perror("connect"); exit(2); }
  return s;
}

static int send_all(Connection *c, const char *bytes, size_t n) {
  while (n) {
    ssize_t k = send(c->socket, bytes, n, MSG_NOSIGNAL);
    if (k <= 0) return -1;
    bytes += k; n -= k;
  }
  return 0;
}

/* Makes at least n bytes available at buffer[head]; -1 when the peer closes. */
static int need(Connection *c, size_t n) {
  if (c->tail - c->head >= n) return 0;
  if (n > RECEIVE_BYTES) return -1;
  if (c->head + n > RECEIVE_BYTES) {
    memmove(c->buffer, c->buffer + c->head, c->tail - c->head);
    c->tail -= c->head; c->head = 0;
  }
  while (c->tail - c->head < n) {
    ssize_t k = recv(c->socket, c->buffer + c->tail, RECEIVE_BYTES - c->tail, 0);
    if (k <= 0) return -1;
    c->tail += k;
  }
  return 0;
}

/* The next line without its CR LF, ended by a zero; NULL when the peer closes. Valid until the next call. */
static char *next_line(Connection *c) {
  size_t seen = 0;
  for (;;) {
    char *end = memchr(c->buffer + c->head + seen, '\n', c->tail - c->head - seen);
    if (end) {
      char *line = c->buffer + c->head;
      end[-1] = 0;
      c->head = end + 1 - c->buffer;
      return line;
    }
    seen = c->tail - c->head;
    if (need(c, seen + 1)) return NULL;
  }
}

static inline int skip(Connection *c, size_t n) {
  if (need(c, n)) return -1;
  c->head += n;
  return 0;
}

static void record(Connection *c, double started) {
  c->calls++;
  if (c->latency_count < LATENCIES_MAX) c->latency_us[c->latency_count++] = (uint32_t)((now() - started) * 1e6);
}

/* Called for one connection after the other, before the clock starts. */
static void prepare_connection(Connection *c);
static void *run_connection(void *connection);

static int compare(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return x < y ? -1 : x > y;
}

static int run_load(int argc, char **argv) {
  if (argc < 9) { fprintf(stderr, "usage: %s HOST PORT MODE CONNS TOPICS BATCH SIZE SECONDS\n", argv[0]); return 2; }
  host = argv[1]; port = atoi(argv[2]); mode = argv[3]; conns = atoi(argv[4]);
  topics = atoi(argv[5]); batch = atoi(argv[6]); size = atoi(argv[7]); seconds = atof(argv[8]);
  Connection *all = calloc(conns, sizeof *all);
  pthread_t *threads = calloc(conns, sizeof *threads);
  for (int i = 0; i < conns; i++) {
    all[i].id = i; all[i].socket = dial();
    all[i].buffer = malloc(RECEIVE_BYTES); all[i].latency_us = malloc(LATENCIES_MAX * 4);
  }
  for (int i = 0; i < conns; i++) prepare_connection(&all[i]);
  double started = now();
  for (int i = 0; i < conns; i++) pthread_create(&threads[i], 0, run_connection, &all[i]);
  for (int i = 0; i < conns; i++) pthread_join(threads[i], 0);
  double took = now() - started;
  uint64_t calls = 0, msgs = 0, bytes = 0, errors = 0, empty = 0, n = 0;
  uint32_t *latency = malloc((size_t)conns * LATENCIES_MAX * 4);
  for (int i = 0; i < conns; i++) {
    calls += all[i].calls; msgs += all[i].msgs; bytes += all[i].bytes; errors += all[i].errors; empty += all[i].empty;
    memcpy(latency + n, all[i].latency_us, all[i].latency_count * 4); n += all[i].latency_count;
  }
  qsort(latency, n, 4, compare);
  printf("{\"mode\":\"%s\",\"conns\":%d,\"topics\":%d,\"batch\":%d,\"size\":%d,\"calls_s\":%.0f,\"msgs_s\":%.0f,"
         "\"MB_s\":%.1f,\"p50_us\":%u,\"p99_us\":%u,\"p999_us\":%u,\"empty\":%lu,\"errors\":%lu}\n",
         mode, conns, topics, batch, size, calls / took, msgs / took, bytes / took / 1e6, n ? latency[n / 2] : 0,
         n ? latency[n * 99 / 100] : 0, n ? latency[n * 999 / 1000] : 0, empty, errors);
  return errors ? 1 : 0;
}
