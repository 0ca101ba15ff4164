/* Hands a buffer to each model, as a camera or a microphone fills it, and prints which output is the largest. */
#include <stdio.h>
#include <string.h>

@INCLUDES@

@BUFFERS@

@ARENA@

@HELPERS@
static void print_result(const char *name, long best, long integer) {
  printf(best < 0 ? "%s was refused\n" : "%s: output %ld is the largest, %ld\n", name, best, integer);
}

@FUNCTIONS@
static int example(void) {
@RUNS@
  return 0;
}
