/* redisload: poeload's work done with Redis Streams. A write call is BATCH pipelined XADDs of one field
 * and awaits all their ids; a read call is one XRANGE of COUNT BATCH after the last id seen.
 */
#include "loadgen.h"

/* Consumes one reply. `depth` counts array levels; at depth 2 the first bulk string of an entry is its id. */
static int consume(Connection *c, int depth, char *last_id, uint64_t *entries) {
  char *line = next_line(c);
  if (!line) return -1;
  long n = atol(line + 1);
  switch (line[0]) {
    case '+': case ':': return 0;
    case '$': return n < 0 ? 0 : skip(c, n + 2);
    case '*':
      if (depth == 1) {
        /* An entry: its id, then its fields. */
        char *id_header = next_line(c);
        if (!id_header || id_header[0] != '$') return -1;
        long id_size = atol(id_header + 1);
        if (id_size > 62 || need(c, id_size + 2)) return -1;
        memcpy(last_id, c->buffer + c->head, id_size);
        last_id[id_size] = 0;
        c->head += id_size + 2;
        (*entries)++;
        n--;
      }
      for (long i = 0; i < n; i++) if (consume(c, depth + 1, last_id, entries)) return -1;
      return 0;
    default: return -1;
  }
}

static size_t build_adds(char *request, const char *message, int topic) {
  char key[32], *p = request;
  int key_size = snprintf(key, sizeof key, "t%d", topic);
  for (int i = 0; i < batch; i++) {
    p += sprintf(p, "*5\r\n$4\r\nXADD\r\n$%d\r\n%s\r\n$1\r\n*\r\n$1\r\nm\r\n$%d\r\n", key_size, key, size);
    memcpy(p, message, size); p += size;
    *p++ = '\r'; *p++ = '\n';
  }
  return p - request;
}

static size_t build_range(char *request, int topic, const char *last_id) {
  char key[32], start[80], count[16];
  int key_size = snprintf(key, sizeof key, "t%d", topic);
  int start_size = snprintf(start, sizeof start, last_id[0] ? "(%s" : "-%s", last_id);
  int count_size = snprintf(count, sizeof count, "%d", batch);
  return sprintf(request, "*6\r\n$6\r\nXRANGE\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n$1\r\n+\r\n$5\r\nCOUNT\r\n$%d\r\n%s\r\n",
                 key_size, key, start_size, start, count_size, count);
}

static void prepare_connection(Connection *c) { (void)c; }

static void *run_connection(void *arg) {
  Connection *c = arg;
  int reads = !strcmp(mode, "read");
  char *request = malloc(256 + (size_t)batch * (size + 128)), *message = malloc(size);
  char (*last_id)[64] = calloc(topics, 64);
  for (int i = 0; i < size; i++) message[i] = 'a' + i % 26;
  unsigned seed = c->id * 7919 + 1;
  double end = now() + seconds, started;
  while ((started = now()) < end) {
    int t = rand_r(&seed) % topics;
    size_t n = reads ? build_range(request, t, last_id[t]) : build_adds(request, message, t);
    if (send_all(c, request, n)) { c->errors++; break; }
    uint64_t entries = 0;
    int failed = 0;
    for (int i = 0; i < (reads ? 1 : batch) && !failed; i++) failed = consume(c, 0, last_id[t], &entries);
    if (failed) { c->errors++; break; }
    if (reads && !entries) { c->empty++; last_id[t][0] = 0; }
    uint64_t done = reads ? entries : (uint64_t)batch;
    c->msgs += done; c->bytes += done * size;
    record(c, started);
  }
  close(c->socket);
  return 0;
}

int main(int argc, char **argv) { return run_load(argc, argv); }
