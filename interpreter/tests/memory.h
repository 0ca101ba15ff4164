/* Memory for tests of kernels, on a host and on a board. */
#ifndef NMP_TESTS_MEMORY_H
#define NMP_TESTS_MEMORY_H

#include <stddef.h>

/* Bytes of a buffer. */
#if __STDC_HOSTED__
#define SLOT (1 << 23)
#else
#define SLOT (1 << 20)
#endif
#define MARGIN 64 /* poisoned bytes around an output */

/* Those up to GUARDED have a guard on boards, too. */
enum { WANT, GOT, A, B, TABLE, PAD, SCRATCH, PACKED, GUARDED, SHIFTS = GUARDED, SLOTS };

/* The last `bytes` bytes of a slot; what follows cannot be accessed, where the machine can be told so. */
void *tail(int slot, size_t bytes);

#endif
