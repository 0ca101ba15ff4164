/* Parts that average and max pooling share: windows over H and W of [N,H,W,C]. */
#ifndef NMP_OPS_COMMON_POOL_H
#define NMP_OPS_COMMON_POOL_H

#include "ops/common/window.h"

typedef struct nmp_pool {
  nmp_axis v, h; /* vertical, horizontal; in and out are set by nmp_pool_of */
} nmp_pool;

/* The pool with the sizes of the op's input and output. */
nmp_pool nmp_pool_of(const nmp_op *op, nmp_axis v, nmp_axis h);

nmp_rule nmp_check_pool(const nmp_op *op, nmp_pool pool);

/* A bound of the additions or comparisons. */
uint64_t nmp_pool_work(const nmp_op *op, int32_t kernel_h, int32_t kernel_w);

/* The pixels of the window of the output pixel in a column of a line (counted through the batch), without padding. */
nmp_pixels nmp_pool_window(const nmp_op *op, const nmp_pool *pool, size_t line, size_t column);

/* From the window of the column before to the same of `column`. */
void nmp_pool_next(const nmp_op *op, const nmp_pool *pool, size_t line, size_t column, nmp_pixels *window);

#endif
