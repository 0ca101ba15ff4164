/* Mutated files: each is refused with a status or runs to its end, and every op writes its output and scratch only.
 *
 *   fuzz_model FIRST COUNT SEED FILE...
 *
 * Mutant i depends on SEED, i and the files alone; when a sanitizer reports, the number of the mutant is printed, to be
 * run again as FIRST. Built with -DNMP_LIBFUZZER it is a libFuzzer target instead, with the same mutations.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "core/model.h"
#include "gen/nmp_schema.h"
#include "guarded.h"

/* More than this is legal but too slow to run by the thousand, or by the million. */
#ifdef NMP_CLOSED_PAGES
#define ARENA_LIMIT ((size_t)32 << 10)
#define WORK_LIMIT ((uint64_t)32 << 10)
#else
#define ARENA_LIMIT ((size_t)8 << 20)
#define WORK_LIMIT ((uint64_t)2 << 20)
#endif
#define STATUSES 64
#define SEEDS_MAX 1024
#define PLACES_MAX 2048
#define ELEMENTS_MAX 64
#define INPUT_MAX 4096 /* bytes, of libFuzzer */

enum { FILE_SLOT, ARENA_SLOT, BEFORE_SLOT, KEPT_SLOT, MUTANT_SLOT };

static uint64_t state;
static long current = -1;
static const char *origin = ""; /* the file that the current mutant comes from */

static uint32_t random32(void) {
  state += 0x9e3779b97f4a7c15u;
  uint64_t z = state;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return (uint32_t)(z >> 32);
}

static uint32_t below(size_t n) {
  return (uint32_t)(random32() % (n ? n : 1));
}

static void fail(const char *what, uint32_t op) {
  fprintf(stderr, "mutant %ld of %s: %s (op %u)\n", current, origin, what, op);
  abort();
}

/* Place of the checksum, if the root table can still be found. */
static uint8_t *checksum_place(uint8_t *file, size_t bytes) {
  if (bytes < 8 || !fb_verify_root(&nmp_schema, FB_MODEL, file, (uint32_t)bytes)) {
    return NULL;
  }
  return (uint8_t *)(uintptr_t)fb_slot(fb_root(file), FB_SLOT_CHECKSUM);
}

static void seal(uint8_t *file, size_t bytes) {
  uint8_t *place = checksum_place(file, bytes);
  if (place) {
    memset(place, 0, 4);
    uint32_t crc = nmp_crc32(0, file, bytes);
    for (int i = 0; i < 4; i++) {
      place[i] = (uint8_t)(crc >> 8 * i);
    }
  }
}

/* The last op is followed by the copies of states to their inputs: these count as they are now. */
static void allow_states(nmp_net *net, const nmp_model *m, const uint8_t *arena, uint8_t *before, size_t keep) {
  for (uint32_t i = 0; i < m->inputs.count; i++) {
    nmp_view view;
    if (nmp_model_state(m, i) >= 0 && nmp_input(net, i, &view) == NMP_OK) {
      const size_t at = (size_t)((uint8_t *)view.data - arena);
      memcpy(before + at, view.data, at + view.bytes <= keep ? view.bytes : 0);
    }
  }
}

/* Runs op i and compares everything but its output with how it was. */
static void run_op(nmp_net *net, const nmp_model *m, uint32_t i, uint8_t *arena, uint8_t *before, size_t keep) {
  nmp_view view;
  if (nmp_tensor_at(net, nmp_model_output_of(m, i), &view) != NMP_OK) {
    fail("no output", i);
  }
  size_t start = (size_t)((uint8_t *)view.data - arena), end = start + view.bytes;
  if (end > keep) {
    fail("output outside the activations", i);
  }
  memcpy(before, arena, keep);
  if (nmp_run_ops(net, i, i + 1) != NMP_OK) {
    fail("a run failed", i);
  }
  if (i + 1 == m->ops.count) {
    allow_states(net, m, arena, before, keep);
  }
  if (memcmp(before, arena, start) != 0 || memcmp(before + end, arena + end, keep - end) != 0) {
    fail("written outside the output", i);
  }
}

static void fill(nmp_net *net, uint32_t inputs, int random) {
  for (uint32_t i = 0; i < inputs; i++) {
    nmp_view view;
    nmp_input(net, i, &view);
    for (size_t k = 0; k < view.bytes; k++) {
      ((uint8_t *)view.data)[k] = random ? (uint8_t)random32() : 0;
    }
  }
}

/* Inspects the file and, when it is legal and small, runs it. Returns the status. */
static nmp_status exercise(const uint8_t *file, size_t bytes) {
  nmp_info info;
  nmp_fault fault;
  nmp_net *net, *other;
  nmp_model m;
  nmp_kernels kernels;
  nmp_kernels_portable(&kernels);
  m.kernels = &kernels;
  m.options = NULL;
  nmp_status status = nmp_inspect(file, bytes, NULL, &info, &fault);
  if (status != NMP_OK || info.arena_bytes > ARENA_LIMIT || info.work > WORK_LIMIT) {
    return status;
  }
  uint8_t *arena = take(ARENA_SLOT, info.arena_bytes, NMP_ALIGN),
          *before = take(BEFORE_SLOT, info.arena_bytes, NMP_ALIGN);
  if (nmp_create(&net, file, bytes, arena, info.arena_bytes, NULL, NULL) != NMP_OK ||
      nmp_model_open(&m, file, bytes, &fault) != NMP_OK) {
    fail("create and inspect differ", 0);
  }
  if (fb_model_checksum(m.root) % 8 == 0 && /* each verifies the file again */
      nmp_create(&other, file, bytes, before, info.arena_bytes - 1, NULL, NULL) != NMP_E_ARENA) {
    fail("an arena one byte short was taken", 0);
  }
  nmp_view input;
  size_t base = 0; /* of the activations */
  if (info.inputs > 0 && nmp_input(net, 0, &input) == NMP_OK) {
    uint8_t *activations = (uint8_t *)input.data - fb_tensor_offset(fb_element(m.tensors, nmp_model_port(m.inputs, 0)));
    memset(activations, 0xa5, info.arena_bytes - (size_t)(activations - arena));
    base = (size_t)(activations - arena);
  }
  for (int random = 0; random < 2; random++) {
    fill(net, info.inputs, random);
    for (uint32_t i = 0; i < info.ops; i++) {
      run_op(net, &m, i, arena, before, base + (base ? nmp_model_live_end(&m, i) : info.arena_bytes));
    }
  }
  const size_t kept = nmp_suspended_bytes(net);
  uint8_t *memory = take(KEPT_SLOT, kept, NMP_ALIGN);
  if (nmp_suspend(net, memory, kept) != NMP_OK || nmp_resume(&net, arena, memory, kept) != NMP_OK) {
    fail("it does not go on", 0);
  }
  give_back(memory);
  give_back(arena);
  give_back(before);
  return status;
}

/* A number in a seed: of a scalar field or of a vector. */
typedef struct place {
  uint32_t at, width;
} place;

typedef struct seed {
  const char *path;
  uint8_t *data;
  size_t bytes;
  place places[PLACES_MAX];
  size_t count;
} seed;

static void add_place(seed *s, const uint8_t *p, uint32_t width) {
  if (s->count < PLACES_MAX) {
    s->places[s->count++] = (place){(uint32_t)(p - s->data), width};
  }
}

static void find_places(seed *s, uint32_t number, const uint8_t *table) {
  const fb_field *fields = nmp_schema.fields + nmp_schema.first[number];
  for (uint32_t i = 0; nmp_schema.first[number] + i < nmp_schema.first[number + 1]; i++) {
    const fb_field *field = &fields[i];
    const uint8_t *p = fb_slot(table, i);
    uint8_t kind = fb_kind(field);
    if (p == NULL || kind == FB_KIND_STRING || kind == FB_KIND_STRINGS) {
      continue;
    }
    if (kind == FB_KIND_SCALAR) {
      add_place(s, p, field->arg);
    } else if (kind == FB_KIND_TABLE) {
      find_places(s, field->arg, fb_follow(p));
    } else if (kind == FB_KIND_UNION) {
      uint8_t member = fb_u8(table, i - 1, 0);
      if (member > 0 && member <= field->arg) {
        find_places(s, member - 1u, fb_follow(p));
      }
    } else {
      fb_vector v = fb_get_vector(table, i);
      for (uint32_t k = 0; k < v.count && k < ELEMENTS_MAX; k++) {
        if (kind == FB_KIND_TABLES) {
          find_places(s, field->arg, fb_element(v, k));
        } else {
          add_place(s, v.data + k * field->arg, field->arg);
        }
      }
    }
  }
}

/* A number that breaks things, of any width. */
static uint32_t interesting(size_t bytes) {
  static const uint32_t numbers[] = {0,          1,          2,     3,     4,      7,      8,          15,
                                     16,         0x7f,       0x80,  0xff,  0x7fff, 0x8000, 0x7fffffff, 0x80000000,
                                     0xffffffff, 0xfffffff0, 0x100, 65536, 46341,  131072, 0x40000000, 64};
  uint32_t kind = below(8);
  if (kind == 0) {
    return random32();
  }
  return kind == 1 ? below(bytes) : kind == 2 ? below(300) : numbers[below(sizeof(numbers) / sizeof(numbers[0]))];
}

static void put(uint8_t *file, size_t bytes, size_t at, uint64_t value, size_t width) {
  for (size_t i = 0; i < width && at + i < bytes; i++) {
    file[at + i] = (uint8_t)(value >> 8 * i);
  }
}

/* Changes the file in one way and returns its new length. */
static size_t mutate(uint8_t *file, size_t bytes, const seed *parent, const seed *other) {
  size_t at = below(bytes), from = below(other->bytes), count;
  if (below(3) != 0) {
    place p = parent->places[below(parent->count)];
    uint32_t value = interesting(bytes);
    put(file, bytes, p.at, p.at < bytes && below(3) == 0 ? file[p.at] + below(5) - 2 : value, p.width);
    return bytes;
  }
  switch (below(8)) {
    case 0:
      for (uint32_t flips = 1 + below(8); flips > 0; flips--) {
        file[below(bytes)] ^= (uint8_t)(1u << below(8));
      }
      break;
    case 1:
    case 2:
      put(file, bytes, at / 4 * 4, interesting(bytes), 4);
      break;
    case 3:
      put(file, bytes, at / 2 * 2, interesting(bytes), 2);
      break;
    case 4:
      put(file, bytes, at, interesting(bytes), 1);
      break;
    case 5: /* a field, or a stretch, of a file */
      at = at / 4 * 4;
      from = from / 4 * 4;
      count = below(2) ? 4 : 4 * (1 + below(16));
      for (size_t i = 0; i < count && at + i < bytes && from + i < other->bytes; i++) {
        file[at + i] = other->data[from + i];
      }
      break;
    case 6: /* a small step of a field */
      at = at / 4 * 4;
      if (at + 4 <= bytes) {
        put(file, bytes, at, fb_load32(file + at) + below(9) - 4, 4);
      }
      break;
    default:
      bytes = below(4) ? bytes : 1 + below(bytes);
  }
  return bytes;
}

#ifdef NMP_LIBFUZZER

size_t LLVMFuzzerMutate(uint8_t *data, size_t bytes, size_t most);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t most, unsigned int number);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#define LEGAL 64

/* The last files that were legal: what is mutated in place of those whose structure is broken, which soon are most. */
static struct {
  uint8_t data[INPUT_MAX];
  size_t bytes;
} legal[LEGAL];
static uint32_t legal_count;

static int is_whole(const uint8_t *file, size_t bytes) {
  return bytes >= 8 && fb_verify(&nmp_schema, FB_MODEL, file, (uint32_t)bytes);
}

/* By the schema, with the right checksum in the end; seldom, and without a legal file, as libFuzzer does it. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t most, unsigned int number) {
  static seed s;
  state = number;
  if (below(16) == 0) {
    return LLVMFuzzerMutate(data, bytes, most);
  }
  if (legal_count > 0 && below(16) != 0 && !is_whole(data, bytes)) {
    const uint32_t i = below(legal_count < LEGAL ? legal_count : LEGAL);
    bytes = legal[i].bytes < most ? legal[i].bytes : most;
    memcpy(data, legal[i].data, bytes);
  }
  uint8_t *file = take(MUTANT_SLOT, bytes, NMP_ALIGN);
  memcpy(file, data, bytes);
  s.data = file;
  s.bytes = bytes;
  s.count = 0;
  if (is_whole(file, bytes)) {
    find_places(&s, FB_MODEL, fb_root(file));
  }
  size_t left = bytes;
  for (uint32_t times = 1 + below(3); s.count > 0 && times > 0; times--) {
    left = mutate(data, left, &s, &s);
  }
  give_back(file);
  if (s.count > 0 && below(16) != 0) {
    seal(data, left);
  }
  return s.count > 0 ? left : LLVMFuzzerMutate(data, bytes, most);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  uint8_t *file = take(FILE_SLOT, bytes, NMP_ALIGN);
  memcpy(file, data, bytes);
  nmp_status status = exercise(file, bytes);
  if (status == NMP_E_CHECKSUM) { /* then with the one that it should have */
    seal(file, bytes);
    status = exercise(file, bytes);
  }
  if (status == NMP_OK && bytes <= INPUT_MAX) {
    memcpy(legal[legal_count % LEGAL].data, file, bytes);
    legal[legal_count++ % LEGAL].bytes = bytes;
  }
  give_back(file);
  return 0;
}

#else

static seed *load(const char *path) {
  seed *s = calloc(1, sizeof(seed));
  s->path = path;
  FILE *f = fopen(path, "rb");
  if (f == NULL || fseek(f, 0, SEEK_END) != 0) {
    fprintf(stderr, "cannot read %s\n", path);
    exit(2);
  }
  s->bytes = (size_t)ftell(f);
  rewind(f);
  s->data = take(FILE_SLOT, s->bytes, NMP_ALIGN);
  if (fread(s->data, 1, s->bytes, f) != s->bytes) {
    exit(2);
  }
  fclose(f);
  nmp_status status = exercise(s->data, s->bytes);
  if (status != NMP_OK) {
    fprintf(stderr, "%s is refused: %s\n", path, nmp_status_text(status));
    exit(1);
  }
  find_places(s, FB_MODEL, fb_root(s->data));
  return s;
}

static nmp_status mutant(uint64_t run, seed *const *seeds, size_t count) {
  state = run * 0x100000000u + (uint64_t)current;
  const seed *parent = seeds[below(count)];
  origin = parent->path;
  uint8_t *file = take(FILE_SLOT, parent->bytes, NMP_ALIGN);
  size_t bytes = parent->bytes;
  memcpy(file, parent->data, bytes);
  for (uint32_t times = 1 + below(3); times > 0; times--) {
    bytes = mutate(file, bytes, parent, below(4) ? parent : seeds[below(count)]);
  }
  if (below(8) != 0) {
    seal(file, bytes);
  }
  uint8_t *exact = take(MUTANT_SLOT, bytes, NMP_ALIGN); /* so that a sanitizer notices a read behind the end */
  memcpy(exact, file, bytes);
  nmp_status status = exercise(exact, bytes);
  give_back(file);
  give_back(exact);
  return status;
}

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif

#ifdef SANITIZED
void __sanitizer_set_death_callback(void (*callback)(void));

static void on_death(void) {
  fprintf(stderr, "mutant %ld of %s\n", current, origin);
}
#endif

int main(int argc, char **argv) {
  unsigned long statuses[STATUSES] = {0};
  static seed *seeds[SEEDS_MAX];
  size_t count = 0;
  const size_t files = argc > 4 ? (size_t)argc - 4 : 0;
  if (files == 0 || files > SEEDS_MAX) {
    fprintf(stderr, "usage: fuzz_model FIRST COUNT SEED FILE...   (1 to %d files)\n", SEEDS_MAX);
    return 2;
  }
#ifdef SANITIZED
  __sanitizer_set_death_callback(on_death);
#endif
  for (; count < files; count++) {
    seeds[count] = load(argv[4 + count]);
  }
  const long first = strtol(argv[1], NULL, 10), end = first + strtol(argv[2], NULL, 10);
  const uint64_t run = strtoull(argv[3], NULL, 10);
  for (current = first; current < end; current++) {
    statuses[mutant(run, seeds, count)]++;
  }
  for (int i = 0; i < STATUSES; i++) {
    if (statuses[i] > 0) {
      printf("%8lu  %2d  %s\n", statuses[i], i, nmp_status_text((nmp_status)i));
    }
  }
  for (size_t i = 0; i < count; i++) {
    give_back(seeds[i]->data);
    free(seeds[i]);
  }
  return 0;
}

#endif
