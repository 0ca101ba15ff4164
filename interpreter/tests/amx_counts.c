/* Counts of a run of a model in instructions of AMX, by the emulation, and whether its outputs are those of
 * the portable kernels. The interpreter has to be compiled with NMP_AMX_EMULATED.
 *
 *   amx_counts model.nmp ...
 */
#include <stdio.h>
#include <stdlib.h>

#include "amx_emulated.h"
#include "nmp.h"

static void *aligned(size_t bytes) {
  void *memory = NULL;
  if (posix_memalign(&memory, 64, bytes + 1) != 0) {
    exit(2);
  }
  memset(memory, 0, bytes + 1);
  return memory;
}

static void *load(const char *path, size_t *bytes) {
  FILE *f = fopen(path, "rb");
  if (f == NULL || fseek(f, 0, SEEK_END) != 0) {
    perror(path);
    exit(2);
  }
  *bytes = (size_t)ftell(f);
  rewind(f);
  void *data = aligned(*bytes);
  *bytes = fread(data, 1, *bytes, f);
  fclose(f);
  return data;
}

/* The outputs of a run on inputs that are always the same, one after the other, in memory to be freed. */
static uint8_t *run(const char *level, const void *file, size_t bytes, size_t *size) {
  const nmp_options options = {.cpu = level, .threads = 1};
  nmp_info info;
  nmp_net *net;
  nmp_view view;
  uint32_t random = 1;
  if (nmp_inspect(file, bytes, &options, &info, NULL) != NMP_OK) {
    exit(2);
  }
  void *arena = aligned(info.arena_bytes);
  uint8_t *outputs = NULL;
  if (nmp_create(&net, file, bytes, arena, info.arena_bytes, &options, NULL) != NMP_OK) {
    exit(2);
  }
  for (uint32_t i = 0; i < info.inputs && nmp_input(net, i, &view) == NMP_OK; i++) {
    for (size_t k = 0; k < view.bytes; k++) {
      random = random * 1664525u + 1013904223u;
      ((uint8_t *)view.data)[k] = (uint8_t)(random >> 24);
    }
  }
  nmp_run(net);
  *size = 0;
  for (uint32_t i = 0; i < info.outputs && nmp_output(net, i, &view) == NMP_OK; i++) {
    outputs = realloc(outputs, *size + view.bytes);
    memcpy(outputs + *size, view.data, view.bytes);
    *size += view.bytes;
  }
  free(arena);
  return outputs;
}

int main(int argc, char **argv) {
  int wrong = 0;
  for (int i = 1; i < argc; i++) {
    size_t bytes, size, wanted_size;
    void *file = load(argv[i], &bytes);
    uint8_t *wanted = run("portable", file, bytes, &wanted_size);
    memset(amx_counts, 0, sizeof(amx_counts));
    uint8_t *got = run("amx", file, bytes, &size);
    const int same = size == wanted_size && memcmp(got, wanted, size) == 0;
    printf("%s: ldtilecfg %llu, tilerelease %llu, tileloadd %llu, tilestored %llu, tdpbssd %llu, %s\n", argv[i],
           amx_counts[AMX_LOADCONFIG], amx_counts[AMX_RELEASE], amx_counts[AMX_LOAD], amx_counts[AMX_STORE],
           amx_counts[AMX_DOT], same ? "the same bytes" : "OTHER BYTES");
    wrong += !same;
    free(file);
    free(wanted);
    free(got);
  }
  return wrong > 0;
}
