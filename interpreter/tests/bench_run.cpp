/* Times of nmp_create and nmp_run, without Python: the fastest of many, whole and op by op.
 *
 *   bench_run model.nmp [cpu level [threads] [ops] [all]]
 *
 * With several threads each step gets as many as it is worth (shares.h); with `all` it gets all of them.
 */
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "../python/pool.h"
#include "../python/shares.h"
#include "nmp.h"

#ifndef SECONDS
#define SECONDS 0.5
#endif

static void *aligned(size_t bytes) {
  void *memory;
  if (posix_memalign(&memory, 64, bytes + 1) != 0) {
    exit(2);
  }
  return memset(memory, 0, bytes + 1);
}

static void *load(const char *path, size_t *bytes) {
  FILE *f = fopen(path, "rb");
  if (f == nullptr || fseek(f, 0, SEEK_END) != 0) {
    perror(path);
    exit(2);
  }
  *bytes = static_cast<size_t>(ftell(f));
  rewind(f);
  void *data = aligned(*bytes);
  *bytes = fread(data, 1, *bytes, f);
  fclose(f);
  return data;
}

static double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/* Seconds of a call, the fastest of batches that are long against the clock's own time. */
template <typename Call>
static double fastest(double budget, Call call) {
  double best = 1e9;
  int batch = 1;
  for (const double end = seconds() + budget; seconds() < end;) {
    const double start = seconds();
    for (int i = 0; i < batch; i++) {
      call();
    }
    const double took = seconds() - start;
    best = std::min(best, took / batch);
    batch *= took < 20e-6 ? 2 : 1;
  }
  return best;
}

int main(int argc, char **argv) {
  const char *level = argc > 2 ? argv[2] : nullptr;
  bool ops = false, all = false;
  size_t threads = 1;
  for (int i = 3; i < argc; i++) {
    ops |= strcmp(argv[i], "ops") == 0;
    all |= strcmp(argv[i], "all") == 0;
    threads = atoi(argv[i]) > 0 ? static_cast<size_t>(atoi(argv[i])) : threads;
  }
  Pool pool(threads);
  const nmp_options options = {level, threads > 1 ? Pool::parallel : nullptr, &pool, threads, nullptr};
  nmp_info info;
  nmp_fault fault;
  nmp_net *net;
  size_t bytes;
  if (argc < 2) {
    fprintf(stderr, "usage: bench_run model.nmp [cpu level [threads] [ops] [all]]\n");
    return 2;
  }
  void *file = load(argv[1], &bytes);
  if (nmp_inspect(file, bytes, &options, &info, &fault) != NMP_OK) {
    fprintf(stderr, "%s: %s\n", argv[1], nmp_status_text(fault.status));
    return 2;
  }
  void *arena = aligned(info.arena_bytes);
  const double created =
      fastest(SECONDS / 5, [&] { nmp_create(&net, file, bytes, arena, info.arena_bytes, &options, &fault); });
  Shares<TimedNet> shares(TimedNet(net), threads);
  while (!all && !shares.decided()) {
    shares.run();
  }
  printf("%s, %s: create %.0f us, arena %zu bytes, run %.3f us\n", argv[1], nmp_cpu(net), created * 1e6,
         info.arena_bytes, fastest(SECONDS, [&] { nmp_run(net); }) * 1e6);
  for (size_t i = 0; ops && !all && i < shares.chosen().size(); i++) {
    printf("%s%zu%s", i == 0 ? "threads of steps: " : " ", shares.chosen()[i],
           i + 1 < shares.chosen().size() ? "" : "\n");
  }
  for (uint32_t i = 0; ops && i < info.ops; i++) {
    printf("%4u %10.3f us\n", i, fastest(SECONDS / 10, [&] { nmp_run_ops(net, i, i + 1); }) * 1e6);
    const uint32_t n = nmp_together(net, i);
    if (n > 1) {
      const double together = fastest(SECONDS / 5, [&] { nmp_run_ops(net, i, i + n); });
      const double alone = fastest(SECONDS / 5, [&] {
        for (uint32_t k = i; k < i + n; k++) {
          nmp_run_ops(net, k, k + 1);
        }
      });
      printf("     %10.3f us together with the next %u; one after the other %.3f us\n", together * 1e6, n - 1,
             alone * 1e6);
    }
  }
  free(arena);
  free(file);
  return 0;
}
