/* Memory for tests of kernels, on a host and on a board. */
#ifndef NMP_TESTS_MEMORY_H
#define NMP_TESTS_MEMORY_H

#include <stddef.h>

#define SLOT (1 << 20) /* bytes of a buffer */
#define MARGIN 64      /* poisoned bytes around an output */

enum { WANT, GOT, A, B, TABLE, OTHER, WORK, PACKED, SLOTS };

/* The last `bytes` bytes of a slot; what follows cannot be accessed, where the machine can be told so. */
void *tail(int slot, size_t bytes);

#endif
