/* run_times MODEL LEVEL N: runs a file on inputs of zeros: once, mark, N times, mark, 2 N times, mark. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nmp.h"

#define MARK 0x6e6d70 /* of count_insns.c */

static void *zeros(size_t bytes) {
  void *memory;
  if (posix_memalign(&memory, 64, bytes + 1) != 0) {
    exit(2);
  }
  return memset(memory, 0, bytes + 1);
}

int main(int argc, char **argv) {
  FILE *f = argc == 4 ? fopen(argv[1], "rb") : NULL;
  if (f == NULL || fseek(f, 0, SEEK_END) != 0) {
    fprintf(stderr, "usage: run_times MODEL LEVEL N, of a file that can be read\n");
    return 2;
  }
  const size_t bytes = (size_t)ftell(f);
  void *model = zeros(bytes);
  rewind(f);
  const nmp_options options = {argv[2], NULL, NULL, 1, NULL};
  nmp_info info;
  nmp_net *net;
  nmp_status status =
      fread(model, 1, bytes, f) == bytes ? nmp_inspect(model, bytes, &options, &info, NULL) : NMP_E_NOT_NMP;
  if (status == NMP_OK) {
    status = nmp_create(&net, model, bytes, zeros(info.arena_bytes), info.arena_bytes, &options, NULL);
  }
  if (status == NMP_OK) {
    status = nmp_run(net);
  }
  getpgid(MARK);
  for (int times = 1; times <= 2; times++) {
    for (int i = times * atoi(argv[3]); status == NMP_OK && i > 0; i--) {
      status = nmp_run(net);
    }
    getpgid(MARK);
  }
  fprintf(stderr, "%s\n", nmp_status_text(status));
  return status == NMP_OK ? 0 : 1;
}
