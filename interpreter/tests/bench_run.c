/* How long nmp_run takes, without Python: the fastest of many runs, whole and op by op.
 *
 *   bench_run model.nmp [cpu level [ops]]
 */
#define _POSIX_C_SOURCE 200112L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "nmp.h"

#define SECONDS 0.5

static void *aligned(size_t bytes) {
  void *memory;
  if (posix_memalign(&memory, 64, bytes + 1) != 0) {
    exit(2);
  }
  return memset(memory, 0, bytes + 1);
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

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds of ops [first, last), the fastest of batches that are long against the clock's own time. */
static double fastest(nmp_net *net, uint32_t first, uint32_t last, double budget) {
  double best = 1e9;
  int batch = 1;
  for (const double end = seconds() + budget; seconds() < end;) {
    const double start = seconds();
    for (int i = 0; i < batch; i++) {
      nmp_run_ops(net, first, last);
    }
    const double took = seconds() - start;
    if (took < 20e-6) {
      batch *= 2;
    } else if (took / batch < best) {
      best = took / batch;
    }
  }
  return best;
}

int main(int argc, char **argv) {
  nmp_options options = {argc > 2 ? argv[2] : NULL, NULL, NULL, 1};
  nmp_info info;
  nmp_fault fault;
  nmp_net *net;
  size_t bytes;
  if (argc < 2) {
    fprintf(stderr, "usage: bench_run model.nmp [cpu level [ops]]\n");
    return 2;
  }
  void *file = load(argv[1], &bytes);
  if (nmp_inspect(file, bytes, &options, &info, &fault) != NMP_OK) {
    fprintf(stderr, "%s: %s\n", argv[1], nmp_status_text(fault.status));
    return 2;
  }
  void *arena = aligned(info.arena_bytes);
  const double start = seconds();
  nmp_create(&net, file, bytes, arena, info.arena_bytes, &options, &fault);
  const double created = seconds() - start;
  printf("%s, %s: create %.0f us, arena %zu bytes, run %.3f us\n", argv[1], nmp_cpu(net), created * 1e6,
         info.arena_bytes, fastest(net, 0, info.ops, SECONDS) * 1e6);
  for (uint32_t i = 0; argc > 3 && i < info.ops; i++) {
    printf("%4u %10.3f us\n", i, fastest(net, i, i + 1, SECONDS / 10) * 1e6);
  }
  free(arena);
  free(file);
  return 0;
}
