/* Creates a net from the file that is named, with the interpreter of a bundle, and prints the status. */
#include <stdio.h>

#include "nmp.h"

int main(int argc, char **argv) {
  static _Alignas(64) unsigned char file[1 << 16], arena[1 << 16];
  nmp_net *net;
  FILE *from = argc > 1 ? fopen(argv[1], "rb") : NULL;
  if (from == NULL) {
    return 1;
  }
  const size_t bytes = fread(file, 1, sizeof(file), from);
  fclose(from);
  printf("%d\n", (int)nmp_create(&net, file, bytes, arena, sizeof(arena), NULL, NULL));
  return 0;
}
