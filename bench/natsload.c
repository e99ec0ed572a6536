/* natsload: poeload's work done with NATS JetStream, file storage. A write call publishes BATCH messages and
 * awaits all their acknowledgements; a read call pulls up to BATCH messages through a consumer of its own,
 * which starts over when the stream is at its end.
 */
#include "loadgen.h"

/* Consumes one protocol line and its payload. Returns the payload's size for a message, -1 when the
 * connection failed, -2 for a status (end of a pull), -3 for what carries no message. */
static long consume(Connection *c, char *payload, size_t payload_max) {
  char *line = next_line(c);
  if (!line) return -1;
  if (!strncmp(line, "PING", 4)) return send_all(c, "PONG\r\n", 6) ? -1 : -3;
  int is_status = !strncmp(line, "HMSG ", 5);
  if (is_status || !strncmp(line, "MSG ", 4)) {
    long n = atol(strrchr(line, ' ') + 1);
    if (need(c, n + 2)) return -1;
    if (payload) {
      size_t kept = (size_t)n < payload_max - 1 ? (size_t)n : payload_max - 1;
      memcpy(payload, c->buffer + c->head, kept);
      payload[kept] = 0;
    }
    c->head += n + 2;
    return is_status ? -2 : n;
  }
  return !strncmp(line, "-ERR", 4) ? -1 : -3;
}

/* Sends one API request and waits for its answer; an API error other than "exists" ends the program. */
static void api(Connection *c, const char *subject, const char *json) {
  char request[1024], answer[4096];
  int n = snprintf(request, sizeof request, "PUB $JS.API.%s i%d %zu\r\n%s\r\n", subject, c->id, strlen(json), json);
  if (send_all(c, request, n)) exit(2);
  for (;;) {
    long got = consume(c, answer, sizeof answer);
    if (got == -1) { fprintf(stderr, "no answer to %s\n", subject); exit(2); }
    if (got == -3) continue;
    if (strstr(answer, "\"error\"") && !strstr(answer, "already in use")) { fprintf(stderr, "%s: %s\n", subject, answer); exit(2); }
    return;
  }
}

static void create_stream(Connection *c, int topic) {
  char subject[64], json[256];
  snprintf(subject, sizeof subject, "STREAM.CREATE.t%d", topic);
  snprintf(json, sizeof json, "{\"name\":\"t%d\",\"subjects\":[\"t%d\"],\"storage\":\"file\",\"retention\":\"limits\"}", topic, topic);
  api(c, subject, json);
}

static void create_consumer(Connection *c, int topic, int generation) {
  char subject[96], json[320];
  snprintf(subject, sizeof subject, "CONSUMER.DURABLE.CREATE.t%d.c%d_%d", topic, c->id, generation);
  snprintf(json, sizeof json,
           "{\"stream_name\":\"t%d\",\"config\":{\"durable_name\":\"c%d_%d\",\"deliver_policy\":\"all\",\"ack_policy\":\"none\","
           "\"max_waiting\":512,\"mem_storage\":true}}", topic, c->id, generation);
  api(c, subject, json);
}

static void delete_consumer(Connection *c, int topic, int generation) {
  char subject[96];
  snprintf(subject, sizeof subject, "CONSUMER.DELETE.t%d.c%d_%d", topic, c->id, generation);
  api(c, subject, "");
}

static size_t build_publishes(char *request, const char *message, int topic, int id) {
  char *p = request;
  for (int i = 0; i < batch; i++) {
    p += sprintf(p, "PUB t%d i%d %d\r\n", topic, id, size);
    memcpy(p, message, size); p += size;
    *p++ = '\r'; *p++ = '\n';
  }
  return p - request;
}

/* Receives until `batch` messages or a status came; -1 when the connection failed. */
static long receive_batch(Connection *c) {
  long messages = 0;
  while (messages < batch) {
    long got = consume(c, NULL, 0);
    if (got == -1) return -1;
    if (got == -2) break;
    if (got >= 0) messages++;
  }
  return messages;
}

/* Streams and consumers are made beforehand and one by one: the server refuses two creations at once. */
static void prepare_connection(Connection *c) {
  char hello[160];
  int n = snprintf(hello, sizeof hello, "CONNECT {\"verbose\":false,\"headers\":true,\"no_responders\":true}\r\nSUB i%d 1\r\n", c->id);
  if (send_all(c, hello, n)) exit(2);
  for (int t = 0; t < topics; t++) {
    create_stream(c, t);
    if (!strcmp(mode, "read")) create_consumer(c, t, 0);
  }
}

static void *run_connection(void *arg) {
  Connection *c = arg;
  int reads = !strcmp(mode, "read");
  char *request = malloc(256 + (size_t)batch * (size + 64)), *message = malloc(size);
  int *generation = calloc(topics, sizeof *generation);
  for (int i = 0; i < size; i++) message[i] = 'a' + i % 26;
  unsigned seed = c->id * 7919 + 1;
  double end = now() + seconds, started;
  while ((started = now()) < end) {
    int t = rand_r(&seed) % topics;
    size_t length;
    if (reads) {
      char json[64];
      int json_size = snprintf(json, sizeof json, "{\"batch\":%d,\"no_wait\":true}", batch);
      length = sprintf(request, "PUB $JS.API.CONSUMER.MSG.NEXT.t%d.c%d_%d i%d %d\r\n%s\r\n", t, c->id, generation[t], c->id, json_size, json);
    } else length = build_publishes(request, message, t, c->id);
    if (send_all(c, request, length)) { c->errors++; break; }
    long done = receive_batch(c);
    if (done < 0 || (!reads && done < batch)) { c->errors++; break; }
    if (reads && done < batch) {
      c->empty++;
      delete_consumer(c, t, generation[t]);
      create_consumer(c, t, ++generation[t]);
    }
    c->msgs += done; c->bytes += (uint64_t)done * size;
    record(c, started);
  }
  close(c->socket);
  return 0;
}

int main(int argc, char **argv) { return run_load(argc, argv); }
