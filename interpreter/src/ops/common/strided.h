/* Copies blocks between tensors of which each axis has its own stride. */
#ifndef NMP_OPS_COMMON_STRIDED_H
#define NMP_OPS_COMMON_STRIDED_H

#include "ops/common/check.h"

/* A block of up to NMP_RANK_MAX axes; strides are in elements and may be negative. */
typedef struct nmp_block {
  uint32_t rank;
  int32_t shape[NMP_RANK_MAX];
  ptrdiff_t to[NMP_RANK_MAX], from[NMP_RANK_MAX];
} nmp_block;

/* The strides of a tensor's own row-major layout. */
void nmp_strides(const nmp_tensor *t, ptrdiff_t strides[NMP_RANK_MAX]);

/* to and from are the addresses of the block's first element; of the op's output's width. */
void nmp_copy_block(const nmp_op *op, void *to, const void *from, const nmp_block *block);

#endif
