/* Copies blocks between tensors of which each axis has its own stride. */
#ifndef NMP_OPS_COMMON_STRIDED_H
#define NMP_OPS_COMMON_STRIDED_H

#include <string.h>

#include "ops/common/check.h"

/* A block of up to NMP_RANK_MAX axes; strides are in elements and may be negative. */
typedef struct nmp_block {
  uint32_t rank;
  int32_t shape[NMP_RANK_MAX];
  ptrdiff_t to[NMP_RANK_MAX], from[NMP_RANK_MAX];
} nmp_block;

#if defined(__wasm__)
#define NMP_SHORT_COPIES(K) K(1) K(2) K(4) /* small code */
#elif !NMP_FIXED_CPU
/* Sizes in bytes of what is copied often and is short: what a compiler knows it does not call a function for. */
#define NMP_SHORT_COPIES(K) K(1) K(2) K(3) K(4) K(6) K(8) K(12) K(16) K(24) K(32) K(48) K(64)
#else
#define NMP_SHORT_COPIES(K)
#endif

#define NMP_LONG_COPY 256 /* bytes that a function copies faster */

/* A row. Sizes are constants where calling a function would take longer than the copy; the last bytes may be copied
 * twice.
 */
static inline void nmp_copy_bytes(uint8_t *to, const uint8_t *from, size_t n) {
#if NMP_FIXED_CPU
  memcpy(to, from, n);
#else
  if (n > NMP_LONG_COPY || n < 4) {
    memcpy(to, from, n);
  } else if (n < 8) {
    memcpy(to, from, 4);
    memcpy(to + n - 4, from + n - 4, 4);
  } else if (n < 16) {
    memcpy(to, from, 8);
    memcpy(to + n - 8, from + n - 8, 8);
  } else {
    for (size_t i = 0; i + 16 < n; i += 16) {
      memcpy(to + i, from + i, 16);
    }
    memcpy(to + n - 16, from + n - 16, 16);
  }
#endif
}

/* The strides of a tensor's own row-major layout. */
void nmp_strides(const nmp_tensor *t, ptrdiff_t strides[NMP_RANK_MAX]);

/* to and from are the addresses of the block's first element; of the op's output's width. */
void nmp_copy_block(const nmp_op *op, void *to, const void *from, const nmp_block *block);

#define NMP_QUICK_ROWS (NMP_FIXED_CPU && !NMP_SMALL) /* rows are copied without the set-up of a block */

/* n rows of so many elements; steps from row to row are in elements, too. What most blocks are. */
#if NMP_QUICK_ROWS
void nmp_copy_rows(const nmp_op *op, void *to, const void *from, int32_t n, int32_t to_step, int32_t from_step,
                   int32_t length);
#else
static inline void nmp_copy_rows(const nmp_op *op, void *to, const void *from, int32_t n, int32_t to_step,
                                 int32_t from_step, int32_t length) {
  nmp_block rows; /* of which the first two axes are there */
  rows.rank = 2;
  rows.shape[0] = n;
  rows.shape[1] = length;
  rows.to[0] = to_step;
  rows.from[0] = from_step;
  rows.to[1] = rows.from[1] = 1;
  nmp_copy_block(op, to, from, &rows);
}
#endif

#endif
