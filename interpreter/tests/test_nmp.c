/* The API on files with test vectors: test_nmp [--cpu LEVEL]... FILE...
 *
 * For each: inspect, every refusal of a caller's mistake, and at each CPU level, by one thread and by several, create
 * in an arena of exactly the size that was asked for, and each vector run whole, op by op, by a number of threads that
 * differs from op to op, and again after the first run has left its bytes behind. --cpu: at these levels alone.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/model.h"
#include "gen/nmp_schema.h"

#ifndef GUARD
#define GUARD 64 /* bytes; 0 where a tool sees what lies behind a buffer */
#endif

static int failures;

static void expect(int condition, const char *what) {
  if (!condition) {
    failures++;
    printf("failed: %s\n", what);
  }
}

static void *aligned(size_t bytes) {
#ifdef _WIN32
  return _aligned_malloc(bytes, 64);
#else
  void *p = NULL;
  return posix_memalign(&p, 64, bytes) == 0 ? p : NULL;
#endif
}

static void *load(const char *path, size_t *bytes) {
  FILE *f = fopen(path, "rb");
  if (f == NULL || fseek(f, 0, SEEK_END) != 0) {
    return NULL;
  }
  *bytes = (size_t)ftell(f);
  rewind(f);
  void *data = aligned(*bytes + GUARD);
  size_t got = fread(data, 1, *bytes, f);
  fclose(f);
  return got == *bytes ? data : NULL;
}

static void test_mistakes(const uint8_t *file, size_t bytes, const nmp_info *info, uint8_t *arena) {
  nmp_net *net = NULL;
  nmp_view view;
  nmp_fault fault;
  nmp_info unused;
  nmp_options options = {"no such level", NULL, NULL, 1, NULL};
  const size_t size = info->arena_bytes;
  expect(nmp_inspect(NULL, bytes, NULL, &unused, NULL) == NMP_E_ARGUMENT, "no model");
  expect(nmp_inspect(file, bytes, NULL, NULL, NULL) == NMP_E_ARGUMENT, "no info");
  expect(nmp_inspect(file + 8, bytes - 8, NULL, &unused, NULL) == NMP_E_ARGUMENT, "a misaligned model");
  expect(nmp_inspect(file, 7, NULL, &unused, &fault) == NMP_E_NOT_NMP && fault.status == NMP_E_NOT_NMP, "seven bytes");
  expect(nmp_create(NULL, file, bytes, arena, size, NULL, NULL) == NMP_E_ARGUMENT, "no place for the handle");
  expect(nmp_create(&net, file, bytes, arena + 8, size, NULL, NULL) == NMP_E_ARGUMENT, "a misaligned arena");
  expect(nmp_create(&net, file, bytes, NULL, size, NULL, NULL) == NMP_E_ARGUMENT, "no arena");
  expect(nmp_create(&net, file, bytes, arena, size - 1, NULL, &fault) == NMP_E_ARENA, "an arena one byte short");
  expect(fault.found == (int64_t)size - 1 && fault.allowed == (int64_t)size, "what the arena should have");
  expect(nmp_create(&net, file, bytes, arena, size, &options, NULL) == NMP_E_CPU, "an unknown CPU level");
#if NMP_KEEP_STEPS
  options.cpu = NULL;
  options.threads = NMP_THREADS_MAX;
  expect(nmp_inspect(file, bytes, &options, &unused, NULL) == NMP_OK, "as many threads as are allowed");
  options.threads = (size_t)NMP_THREADS_MAX + 1;
  expect(nmp_inspect(file, bytes, &options, &unused, &fault) == NMP_E_ARGUMENT, "too many threads");
  expect(fault.found == NMP_THREADS_MAX + 1 && fault.allowed == NMP_THREADS_MAX, "how many threads are too many");
  options.threads = SIZE_MAX;
  expect(nmp_create(&net, file, bytes, arena, size, &options, &fault) == NMP_E_ARGUMENT, "the most threads");
#endif
  expect(net == NULL, "no handle after a refusal");
  expect(nmp_create(&net, file, bytes, arena, size, NULL, NULL) == NMP_OK, "create");
  expect(nmp_input(net, info->inputs, &view) == NMP_E_ARGUMENT, "an input too far");
  expect(nmp_output(net, info->outputs, &view) == NMP_E_ARGUMENT, "an output too far");
  expect(nmp_tensor_at(net, info->tensors, &view) == NMP_E_ARGUMENT, "a tensor too far");
  expect(nmp_tensor_at(net, 0, NULL) == NMP_E_ARGUMENT, "no view");
  expect(nmp_run_ops(net, 1, 0) == NMP_E_ARGUMENT, "ops backwards");
  expect(nmp_run_ops(net, 0, info->ops + 1) == NMP_E_ARGUMENT, "an op too far");
  expect(nmp_set_threads(net, 0, 1) == NMP_OK, "one thread");
  expect(nmp_set_threads(net, 0, 2) == NMP_E_ARGUMENT, "more threads than the net has");
  expect(nmp_set_threads(net, 0, 0) == NMP_E_ARGUMENT, "no thread");
  expect(nmp_set_threads(net, info->ops, 1) == NMP_E_ARGUMENT, "threads of an op too far");
  expect(nmp_set_threads(NULL, 0, 1) == NMP_E_ARGUMENT, "threads of no net");
  expect(nmp_run(NULL) == NMP_E_ARGUMENT && nmp_cpu(NULL) == NULL, "no handle");
}

/* Every tensor has one exponent, or one for each index of its axis; and they are the file's for the float model. */
static void test_exponents(nmp_net *net, const nmp_model *m) {
  for (uint32_t i = 0; i < m->tensors.count; i++) {
    nmp_view view;
    const uint8_t *table = fb_element(m->tensors, i);
    const fb_vector floats = fb_tensor_float_exponents(table);
    const fb_vector exponents = floats.data ? floats : fb_tensor_exponents(table);
    expect(nmp_tensor_at(net, i, &view) == NMP_OK, "a tensor");
    expect(view.exponent_count == exponents.count && view.exponent == view.exponents[0], "the number of exponents");
    expect(memcmp(view.exponents, exponents.data, exponents.count) == 0, "exponents");
    const fb_vector offsets = fb_tensor_float_offsets(table);
    expect(view.offsets == offsets.data && (offsets.data == NULL || offsets.count == exponents.count), "offsets");
    const fb_vector mantissas = fb_tensor_float_mantissas(table);
    expect(view.mantissas == mantissas.data && (mantissas.data == NULL || mantissas.count == exponents.count),
           "mantissas");
    expect((view.axis < 0 && view.exponent_count == 1) ||
               (view.axis >= 0 && view.axis < view.rank && (uint32_t)view.shape[view.axis] == view.exponent_count),
           "the axis of exponents");
  }
}

static void feed(nmp_net *net, fb_vector inputs) {
  for (uint32_t i = 0; i < inputs.count; i++) {
    nmp_view view;
    fb_vector data = fb_bytes_data(fb_element(inputs, i));
    expect(nmp_input(net, i, &view) == NMP_OK && view.bytes == data.count, "bytes of an input");
    memcpy(view.data, data.data, data.count);
  }
}

static void compare(nmp_net *net, fb_vector outputs, const char *what) {
  for (uint32_t i = 0; i < outputs.count; i++) {
    nmp_view view;
    fb_vector data = fb_bytes_data(fb_element(outputs, i));
    expect(nmp_output(net, i, &view) == NMP_OK && view.bytes == data.count, "bytes of an output");
    expect(memcmp(view.data, data.data, data.count) == 0, what);
  }
}

/* ops: how many there are, to run them one by one, too; 0 for whole runs alone. */
static void test_vectors(nmp_net *net, const nmp_model *m, uint32_t ops, size_t threads) {
  fb_vector vectors = fb_model_test_vectors(m->root);
  expect(vectors.count > 0, "the file has test vectors");
  for (uint32_t v = 0; v < vectors.count; v++) {
    fb_vector inputs = fb_test_vector_inputs(fb_element(vectors, v));
    fb_vector outputs = fb_test_vector_outputs(fb_element(vectors, v));
    feed(net, inputs);
    expect(nmp_run(net) == NMP_OK, "a run");
    compare(net, outputs, "outputs of a run");
    if (ops == 0) {
      continue;
    }
    feed(net, inputs);
    for (uint32_t i = 0; i < ops; i++) {
      const size_t most = NMP_KEEP_STEPS ? threads : 1;
      expect(nmp_set_threads(net, i, 1 + (i + v) % most) == NMP_OK, "threads of an op");
      expect(nmp_run_ops(net, i, i + 1) == NMP_OK, "a run of one op");
    }
    compare(net, outputs, "outputs op by op");
  }
}

#define THREADS 3

/* One task after the other, the last one first, as if each of three threads took some. */
static void in_turn(void *pool, nmp_task task, void *context, size_t n) {
  (void)pool;
  while (n-- > 0) {
    task(context, n, n % THREADS);
  }
}

/* A copy, in an arena of exactly the size that it needs, and then the net itself: neither changes the other one. */
static void test_copy(nmp_net *net, const nmp_model *m, const nmp_info *info, size_t threads) {
#if NMP_KEEP_STEPS
  const size_t size = info->arena_bytes - info->packed_bytes;
  nmp_net *copy = NULL;
  uint8_t *arena = aligned(size + GUARD);
  memset(arena, 0x5a, size + GUARD);
  expect(nmp_copy(NULL, net, arena, size, NULL) == NMP_E_ARGUMENT, "no place for the handle of a copy");
  expect(nmp_copy(&copy, NULL, arena, size, NULL) == NMP_E_ARGUMENT, "a copy of nothing");
  expect(nmp_copy(&copy, net, arena + 8, size, NULL) == NMP_E_ARGUMENT, "a misaligned arena of a copy");
  expect(nmp_copy(&copy, net, arena, size - 1, NULL) == NMP_E_ARENA && copy == NULL, "an arena one byte short");
  expect(nmp_copy(&copy, net, arena, size, NULL) == NMP_OK, "a copy");
  expect(strcmp(nmp_cpu(copy), nmp_cpu(net)) == 0, "the level of a copy");
  test_vectors(copy, m, info->ops, threads);
  for (size_t i = 0; i < GUARD; i++) {
    expect(arena[size + i] == 0x5a, "bytes behind the arena of a copy");
  }
  memset(arena, 0x5a, size);
  free(arena);
  test_vectors(net, m, 0, threads);
#else
  (void)net;
  (void)m;
  (void)info;
  (void)threads;
#endif
}

/* Bytes of its states. */
static size_t state_bytes(nmp_net *net, const nmp_info *info) {
  size_t bytes = 0;
  for (uint32_t i = 0; i < info->inputs; i++) {
    nmp_view view;
    bytes += nmp_state_of(net, i) >= 0 && nmp_input(net, i, &view) == NMP_OK ? view.bytes : 0;
  }
  return bytes;
}

/* Another user of the arena between two runs changes nothing: states go on from where they were. */
static void test_suspend(nmp_net *net, const nmp_model *m, const nmp_info *info) {
  const size_t bytes = nmp_suspended_bytes(net), first = bytes - state_bytes(net, info); /* of the states */
  uint8_t *arena = (uint8_t *)net, *memory = aligned(bytes + GUARD), *states[2] = {NULL, NULL};
  nmp_net *again = NULL;
  memset(memory, 0x5a, bytes + GUARD);
  expect(nmp_suspended_bytes(NULL) == 0 && bytes > 0 && bytes <= info->arena_bytes, "bytes to be kept");
  expect(nmp_suspend(NULL, memory, bytes) == NMP_E_ARGUMENT, "to suspend nothing");
  expect(nmp_suspend(net, NULL, bytes) == NMP_E_ARGUMENT, "no memory to keep it in");
  expect(nmp_suspend(net, memory, bytes - 1) == NMP_E_ARGUMENT, "a byte less than it takes");
  for (int twice = 0; twice < 2; twice++) { /* the second time after a run, when states are not at their start */
    expect(nmp_suspend(net, memory, bytes) == NMP_OK, "suspend");
    again = NULL;
    states[twice] = aligned(bytes);
    memcpy(states[twice], memory, bytes);
    memset(arena, 0x5a, info->arena_bytes);
    expect(nmp_resume(NULL, arena, memory, bytes) == NMP_E_ARGUMENT, "no place for the handle of a resumed net");
    expect(nmp_resume(&again, NULL, memory, bytes) == NMP_E_ARGUMENT, "no arena to resume in");
    expect(nmp_resume(&again, memory, memory, bytes) == NMP_E_ARGUMENT, "another arena");
    expect(nmp_resume(&again, arena, NULL, bytes) == NMP_E_ARGUMENT, "nothing to resume");
    expect(nmp_resume(&again, arena, memory, bytes - 1) == NMP_E_ARGUMENT && again == NULL, "a byte is missing");
    expect(nmp_resume(&again, arena, memory, bytes) == NMP_OK && again == net, "resume");
    expect(nmp_suspend(net, memory, bytes) == NMP_OK, "suspend again");
    expect(memcmp(memory + first, states[twice] + first, bytes - first) == 0, "the same states again");
    test_vectors(net, m, info->ops, 1);
  }
  for (size_t i = 0; i < GUARD; i++) {
    expect(memory[bytes + i] == 0x5a, "bytes behind what is kept");
  }
  free(states[0]);
  free(states[1]);
  free(memory);
}

#if NMP_TWO_MEMORIES
/* Both memories of exactly the size that this level asks for: the same integers as in one arena. */
static void test_split(const uint8_t *file, size_t bytes, const nmp_options *options, const nmp_info *info,
                       const nmp_model *m) {
  const size_t slow = info->arena_bytes - info->fast_bytes, size = info->fast_bytes;
  uint8_t *fast = aligned(size + GUARD), *arena = aligned(slow + GUARD);
  nmp_info only = *info;
  nmp_net *net = NULL;
  only.arena_bytes = slow; /* what test_suspend may overwrite */
  memset(fast, 0x5a, size + GUARD);
  memset(arena, 0x5a, slow + GUARD);
  expect(nmp_create_split(&net, file, bytes, fast + 8, size, arena, slow, options, NULL) == NMP_E_ARGUMENT,
         "misaligned");
  if (size > 0) {
    expect(nmp_create_split(&net, file, bytes, fast, size - 1, arena, slow, options, NULL) == NMP_E_ARENA, "fast");
  }
  expect(nmp_create_split(&net, file, bytes, fast, size, arena, slow - 1, options, NULL) == NMP_E_ARENA, "slow");
  expect(nmp_create_split(&net, file, bytes, NULL, 0, arena, slow, options, NULL) == (size ? NMP_E_ARENA : NMP_OK),
         "one arena for both");
  expect(nmp_create_split(&net, file, bytes, fast, size, arena, slow, options, NULL) == NMP_OK, "two memories");
  test_vectors(net, m, info->ops, options->threads);
  if (options->threads > 1) {
    test_copy(net, m, info, options->threads);
  } else {
    test_suspend(net, m, &only);
  }
  for (size_t i = 0; i < GUARD; i++) {
    expect(fast[size + i] == 0x5a && arena[slow + i] == 0x5a, "bytes behind the memories");
  }
  free(fast);
  free(arena);
}
#endif

/* An arena of exactly the size that this level asks for. */
static void test_level(const uint8_t *file, size_t bytes, const char *level, size_t threads) {
  const nmp_options options = {level, threads > 1 ? in_turn : NULL, NULL, threads, NULL};
  nmp_info info;
  nmp_fault fault;
  nmp_net *net;
  nmp_model m;
  nmp_kernels kernels;
  nmp_kernels_portable(&kernels);
  m.kernels = &kernels;
  m.options = NULL;
  expect(nmp_inspect(file, bytes, &options, &info, &fault) == NMP_OK && fault.what == NULL, level);
  uint8_t *arena = aligned(info.arena_bytes + GUARD);
  memset(arena, 0x5a, info.arena_bytes + GUARD);
  expect(nmp_create(&net, file, bytes, arena, info.arena_bytes, &options, NULL) == NMP_OK, "every CPU level");
  expect(strcmp(nmp_cpu(net), level) == 0, "the level that was asked for");
  expect(nmp_model_open(&m, file, bytes, &fault) == NMP_OK, "open");
  test_vectors(net, &m, info.ops, threads);
  test_exponents(net, &m);
  if (threads > 1) { /* of one thread, too: its ops take turns */
    test_copy(net, &m, &info, threads);
  } else {
    test_suspend(net, &m, &info);
  }
  for (size_t i = 0; i < GUARD; i++) {
    expect(arena[info.arena_bytes + i] == 0x5a, "bytes behind the arena");
  }
#if NMP_TWO_MEMORIES
  test_split(file, bytes, &options, &info, &m);
#endif
  free(arena);
}

/* Another machine's needs cover the activations, and those of one op are no more than all. */
static void test_targets(const uint8_t *file, size_t bytes) {
#if !NMP_FIXED_CPU
  nmp_info info;
  nmp_fault fault;
  nmp_op_info ops[2] = {{.scratch_bytes = 0}, {.scratch_bytes = 0x5a5a5a5a, .portable = 2}};
  for (size_t i = 0; nmp_target(i); i++) {
    const char *name = nmp_target(i);
    expect(nmp_inspect_target(name, file, bytes, &info, ops, 1, &fault) == NMP_OK && fault.what == NULL, name);
    expect(info.arena_bytes > info.activation_bytes && info.packed_bytes == 0, "bytes of its arena");
    expect(ops[0].scratch_bytes <= info.scratch_bytes && ops[0].portable <= 1, "the first op");
    expect(ops[1].scratch_bytes == 0x5a5a5a5a && ops[1].portable == 2, "the first op alone");
  }
  expect(nmp_inspect_target("cortex-m4", file, 7, &info, NULL, 0, NULL) == NMP_E_NOT_NMP, "seven bytes");
  expect(nmp_inspect_target("pdp11", file, bytes, &info, NULL, 0, NULL) == NMP_E_CPU, "an unknown target");
  expect(nmp_inspect_target(NULL, file, bytes, &info, NULL, 0, NULL) == NMP_E_ARGUMENT, "no target");
  expect(nmp_inspect_target("rv32", file, bytes, &info, NULL, 1, NULL) == NMP_E_ARGUMENT, "no room for ops");
#else
  (void)file;
  (void)bytes;
#endif
}

/* levels: those that are named, or NULL for all of this machine. */
static void test_file(const char *path, char *const *levels, int named) {
  size_t bytes = 0;
  nmp_info info;
  uint8_t *file = load(path, &bytes);
  if (file == NULL || nmp_inspect(file, bytes, NULL, &info, NULL) != NMP_OK) {
    expect(0, path);
    return;
  }
  uint8_t *arena = aligned(info.arena_bytes);
  test_mistakes(file, bytes, &info, arena);
  free(arena);
  test_targets(file, bytes);
  const char *level;
  for (int i = 0; (level = named == 0 ? nmp_cpu_level((size_t)i) : i < named ? levels[2 * i] : NULL) != NULL; i++) {
    test_level(file, bytes, level, 1);
    test_level(file, bytes, level, THREADS);
  }
  free(file);
}

int main(int argc, char **argv) {
  int first = 1;
  while (first + 1 < argc && strcmp(argv[first], "--cpu") == 0) {
    first += 2;
  }
  expect(argc > first, "a file to test");
  expect(strcmp(nmp_version(), NMP_VERSION) == 0, "version");
  for (int status = 0; status < 64; status++) {
    expect(nmp_status_text((nmp_status)status)[0] != '\0', "a text for every status");
  }
  for (int i = first; i < argc; i++) {
    test_file(argv[i], argv + 2, first / 2);
  }
  printf("%s: %d file(s)\n", failures ? "FAILED" : "passed", argc - first);
  return failures != 0;
}
