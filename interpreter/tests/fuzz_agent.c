/* fuzz_agent SEED FRAMES MODEL.nmp...: hostile frames for the device's agent, to be built with sanitizers.
 *
 * Frames are right, wrong in one place, or noise; numbers are mostly those at the edges of what is allowed. In between
 * a model is uploaded and loaded as it should be. Prints how many frames the agent answered, and how many it refused.
 *
 * Built with -DNMP_LIBFUZZER it is a libFuzzer target instead: what is drawn by chance here, its input decides.
 * NMP_MODELS names the files, with colons between.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent.h"

enum { HELLO = 1, BEGIN, DATA, LOAD, INPUT, RUN, PROFILE, DIGESTS, READ, RESET, SPEED, TYPES };
enum { REFUSED = 0xFF };

#define MODEL_BYTES 32768
#define ARENA_BYTES 16384

#define FRAMES_MAX 512 /* of an input of libFuzzer */

static uint64_t state;
static const uint8_t *deciding, *deciding_end; /* the rest of libFuzzer's input; NULL: chance decides */
static uint8_t *file;
static size_t file_bytes;
static uint32_t file_crc;
static frame_parser answers;
static unsigned long answered, refused, runs;
static const uint32_t rates[] = {5, 256}; /* among the numbers that are drawn */

static uint32_t pick(uint32_t below) {
  if (deciding != NULL) {
    uint32_t value = 0;
    for (uint32_t left = below - 1; left > 0 && deciding < deciding_end; left >>= 8) {
      value = value << 8 | *deciding++;
    }
    return value % below;
  }
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (uint32_t)(state >> 32) % below;
}

static uint64_t cycles(int start) {
  (void)start;
  return 1;
}

static void set_rate(uint32_t rate) {
  if (rate != rates[0] && rate != rates[1]) {
    abort();
  }
}

static void put(void *to, const uint8_t *data, size_t bytes) {
  frame f;
  (void)to;
  for (size_t i = 0; i < bytes; i++) {
    if (frame_push(&answers, data[i], &f)) {
      answered++;
      refused += f.type == REFUSED;
      runs += f.type == (RUN | 0x80);
    }
  }
}

static uint32_t number(void) {
  const uint32_t edges[] = {0,           1,   2,           3,           5,           254,
                            255,         256, 257,         MODEL_BYTES, ARENA_BYTES, (uint32_t)file_bytes,
                            0x7FFFFFFFu, 64,  0x80000000u, 0xFFFFFFFFu, 0xFFFFFF00u, file_crc};
  uint32_t edge = edges[pick(sizeof(edges) / sizeof(edges[0]))];
  return pick(8) ? edge + pick(3) - 1 : edge ^ pick(0xFFFFFFFFu);
}

static void line(agent *a, uint8_t type, const uint8_t *payload, size_t bytes, int harm) {
  uint8_t data[FRAME_ENCODED + 2];
  size_t length = frame_encode(data, type, (uint16_t)pick(4), payload, bytes);
  if (harm) {
    data[pick((uint32_t)length)] = (uint8_t)pick(256);
    length -= pick(4) ? 0 : pick((uint32_t)length);
  }
  for (size_t i = 0; i < length; i++) {
    agent_push(a, data[i]);
  }
}

/* An upload, as a host does it, or only some of its chunks; inputs are all zero. anew: what was there is forgotten. */
static void upload(agent *a, size_t chunks, int anew) {
  uint8_t payload[FRAME_PAYLOAD];
  frame_put(frame_put(payload, file_bytes, 4), file_crc, 4);
  if (anew) {
    line(a, RESET, NULL, 0, 0);
  }
  line(a, BEGIN, payload, 8, 0);
  for (size_t at = 0; at < file_bytes && at / AGENT_CHUNK < chunks; at += AGENT_CHUNK) {
    size_t bytes = file_bytes - at < AGENT_CHUNK ? file_bytes - at : AGENT_CHUNK;
    frame_put(payload, at, 4);
    memcpy(payload + 4, file + at, bytes);
    line(a, DATA, payload, 4 + bytes, 0);
  }
  frame_put(payload, file_crc, 4);
  line(a, LOAD, payload, 4, 0);
}

/* Runs the whole model, or asks for digests of tensors after some ops, or again for what has run. */
static void run(agent *a) {
  uint8_t payload[12 + 4 * 8], *p = frame_put(payload, file_crc, 4);
  p = frame_put(p, a->net ? frame_crc32(0, a->inputs, a->input_bytes) : 0, 4);
  if (pick(2)) {
    frame_put(p, a->info.ops + (pick(4) ? 0 : number()), 4);
    line(a, RUN, payload, 12, 0);
    line(a, RUN, payload, 12, 0); /* the answer may have been lost */
    return;
  }
  uint32_t first = pick(a->info.ops + 2), count = pick(8);
  p = frame_put(p, first, 4);
  for (uint32_t i = 0; i < count; i++) {
    p = frame_put(p, pick(a->info.tensors + 1), 4);
  }
  line(a, DIGESTS, payload, 12 + 4 * count, 0);
}

static void hostile(agent *a) {
  static const uint8_t sizes[TYPES] = {0, 0, 8, 20, 4, 20, 12, 4, 16, 12, 0, 4};
  uint8_t payload[FRAME_PAYLOAD], type = (uint8_t)(pick(64) ? 1 + pick(READ) : pick(256));
  if ((type == BEGIN || type == RESET) && pick(32)) {
    type = type == BEGIN && pick(2) ? SPEED : READ; /* most frames meet a loaded model */
  }
  size_t bytes = type < TYPES && pick(4) ? sizes[type] : pick(FRAME_PAYLOAD + 1);
  for (size_t at = 0; at < bytes; at += 4) {
    uint8_t word[4];
    frame_put(word, number(), 4);
    memcpy(payload + at, word, bytes - at < 4 ? bytes - at : 4);
  }
  line(a, type, payload, bytes, pick(8) == 0);
}

static uint8_t *aligned(size_t bytes) {
  void *made = NULL;
  if (posix_memalign(&made, 64, bytes) != 0) {
    exit(2);
  }
  memset(made, 0xA5, bytes);
  return made;
}

static size_t read_model(const char *path, size_t length, uint8_t *to) {
  char name[4096];
  snprintf(name, sizeof(name), "%.*s", (int)length, path);
  FILE *from = fopen(name, "rb");
  if (from == NULL) {
    fprintf(stderr, "cannot read %s\n", name);
    exit(2);
  }
  const size_t bytes = fread(to, 1, MODEL_BYTES, from);
  fclose(from);
  return bytes;
}

static void start(agent *a) {
  static agent_config board = {"fuzz",      "fuzz",      "none", 1,   1,    4096,  0, NULL,    NULL,
                               MODEL_BYTES, ARENA_BYTES, cycles, put, NULL, rates, 2, set_rate};
  if (file == NULL) {
    board.model = aligned(MODEL_BYTES);
    board.arena = aligned(ARENA_BYTES);
    file = aligned(MODEL_BYTES);
  }
  agent_init(a, &board);
}

static void step(agent *a, unsigned long i) {
  if (i % 128 == 0) {
    upload(a, MODEL_BYTES, 1);
  } else if (i % 128 == 100) { /* the line is lost; the board may be reset, and its memory stays */
    const agent_config same = a->board;
    upload(a, pick(8), 1);
    if (pick(2)) {
      agent_init(a, &same);
    }
    if (pick(4) == 0) { /* what is kept of an upload, or the file itself, is harmed */
      uint8_t *harmed = pick(2) ? a->board.model : file;
      const uint32_t at = pick(2) ? pick(20) : pick(1024);
      if (harmed == a->board.model) { /* while it is off: no frame reaches the memory of a loaded model */
        agent_init(a, &same);
      }
      harmed[at] ^= (uint8_t)(1 + pick(255));
      file_crc = frame_crc32(0, file, file_bytes);
      if (harmed == a->board.model && pick(2)) { /* and the upload goes on, or is loaded */
        return;
      }
    }
    upload(a, MODEL_BYTES, 0);
  }
  if (i % 16 == 15) {
    run(a);
  } else {
    hostile(a);
  }
}

#ifdef NMP_LIBFUZZER

#define MODELS_MAX 1024

typedef struct model {
  uint8_t *data;
  size_t bytes;
} model;

/* The files that NMP_MODELS names, again from the first one after the last. Each is read once. */
static const model *model_of(uint32_t number) {
  static model models[MODELS_MAX];
  static uint32_t count;
  const char *paths = getenv("NMP_MODELS");
  while (count == 0 || (*paths == ':' && count < MODELS_MAX)) {
    if (paths == NULL || *paths == 0) {
      fprintf(stderr, "NMP_MODELS names no model\n");
      exit(2);
    }
    paths += *paths == ':';
    model *m = &models[count++];
    m->data = aligned(MODEL_BYTES);
    m->bytes = read_model(paths, strcspn(paths, ":"), m->data);
    paths += strcspn(paths, ":");
  }
  return &models[number % count];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  agent a;
  deciding = data;
  deciding_end = data + bytes;
  start(&a);
  a.board.model_bytes = pick(2) ? MODEL_BYTES : 64 * pick(128);
  a.board.ring_bytes = a.board.model_bytes < 1024 ? 0 : 4096;
  a.board.rate_count = a.board.ring_bytes ? 2 : 0;
  const model *chosen = model_of(pick(2) ? pick(4) : pick(1024));
  memcpy(file, chosen->data, chosen->bytes);
  file_bytes = chosen->bytes;
  file_crc = frame_crc32(0, file, file_bytes);
  for (unsigned long i = 0; deciding < deciding_end && i < FRAMES_MAX; i++) {
    step(&a, i);
  }
  return 0;
}

#else

int main(int argc, char **argv) {
  if (argc < 4) {
    return 2;
  }
  unsigned long frames = strtoul(argv[2], NULL, 10);
  state = strtoull(argv[1], NULL, 10) * 0x9E3779B97F4A7C15u + 1;
  agent a;
  start(&a);
  for (unsigned long i = 0; i < frames; i++) {
    if (i % 2048 == 0) {
      const char *path = argv[3 + i / 2048 % (unsigned long)(argc - 3)];
      file_bytes = read_model(path, strlen(path), file);
      file_crc = frame_crc32(0, file, file_bytes);
    }
    step(&a, i);
  }
  printf("%lu answered %lu refused %lu runs\n", answered, refused, runs);
  return 0;
}

#endif
