/* Buffers of libFuzzer's targets. What lies behind one cannot be accessed: a sanitizer sees to it or, where the target
 * is built with -DNMP_CLOSED_PAGES, a page behind the slot that each is the end of, up to its alignment. Such a buffer
 * costs nothing to take, and has the bytes that were there before.
 */
#ifndef NMP_TESTS_GUARDED_H
#define NMP_TESTS_GUARDED_H

#include <stdlib.h>

#include "memory.h"

static void *take(int slot, size_t bytes, size_t alignment) {
#ifdef NMP_CLOSED_PAGES
  return tail(slot, (bytes + alignment - 1) / alignment * alignment);
#else
  void *p = NULL;
  (void)slot, (void)alignment; /* a multiple of any */
  return posix_memalign(&p, 64, bytes ? bytes : 1) == 0 ? p : NULL;
#endif
}

static void give_back(void *p) {
#ifdef NMP_CLOSED_PAGES
  (void)p;
#else
  free(p);
#endif
}

#endif
