/* The tasks of ops other than convolutions: shares of the output, for several threads. */
#ifndef NMP_OPS_COMMON_TASKS_H
#define NMP_OPS_COMMON_TASKS_H

#include "ops/common/check.h"

/* Computes what belongs to [first, last) of the n units of the output; any number of tasks at the same time. */
typedef void nmp_range_fn(const nmp_op *op, const void *how, size_t first, size_t last);

/* All n units, by as many threads as the work (about the bytes that are read) is worth. */
#if NMP_FIXED_CPU
static inline void nmp_run_tasks(const nmp_op *op, size_t n, uint64_t work, nmp_range_fn *run, const void *how) {
  (void)work;
  run(op, how, 0, n);
}
#else
void nmp_run_tasks(const nmp_op *op, size_t n, uint64_t work, nmp_range_fn *run, const void *how);
#endif

#endif
