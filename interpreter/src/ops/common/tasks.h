/* Ops other than convolutions, for several threads: each computes a part of the output. */
#ifndef NMP_OPS_COMMON_PARTS_H
#define NMP_OPS_COMMON_PARTS_H

#include "ops/common/check.h"

/* Computes what belongs to [first, last) of the n units of the output; any number of parts at the same time. */
typedef void nmp_part_fn(const nmp_op *op, const void *how, size_t first, size_t last);

/* All n units, by as many threads as the work (about the bytes that are read) is worth. */
#if NMP_FIXED_CPU
static inline void nmp_run_parts(const nmp_op *op, size_t n, uint64_t work, nmp_part_fn *part, const void *how) {
  (void)work;
  part(op, how, 0, n);
}
#else
void nmp_run_parts(const nmp_op *op, size_t n, uint64_t work, nmp_part_fn *part, const void *how);
#endif

#endif
