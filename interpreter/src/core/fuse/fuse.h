/* Ops that are run together, for PCs: rows that go through several ops (fuse_rows.h), or convolutions that write to
 * their channels of a concatenation (fuse_concat.h).
 */
#ifndef NMP_CORE_FUSE_FUSE_H
#define NMP_CORE_FUSE_FUSE_H

#include "core/model.h"

typedef struct nmp_chain {
  uint32_t count;        /* of ops; below 2 there is none, and the rest is unused */
  uint32_t views;        /* 1: they are run by nmp_views_run, which needs only the scratch */
  uint32_t tasks;        /* that share the rows */
  size_t rows, step;     /* of the result; at a time */
  size_t buffer, worker; /* bytes: of the rows between two ops; of a worker's scratch */
  size_t scratch, copy;  /* bytes: of all workers; of the result, where it must not be written before all is read */
  uint32_t at;           /* where the scratch begins in the arena; the copy of the result comes behind it */
} nmp_chain;

/* The chain that begins with this op of a verified model. The same budget, of steps, finds the same chains. */
nmp_chain nmp_chain_at(const nmp_model *m, const nmp_kernels *kernels, const nmp_options *threads, uint32_t op,
                       uint64_t *budget);

/* What a model may spend on finding them all. */
uint64_t nmp_chain_budget(const nmp_model *m);

/* ops: the first one and those that follow it, prepared. */
void nmp_chain_run(const nmp_chain *chain, const nmp_op *ops, uint8_t *arena);

#endif
