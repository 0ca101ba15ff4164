/* Ops that threads run together: a convolution and what follows it row by row, such as a pointwise convolution, an
 * addition or a table. Each thread takes some rows through all of them, so that threads meet once, and what lies
 * between two ops stays in a cache of the core and is not written to its place in the arena. For PCs.
 *
 * One thread runs op after op: where sums are computed by vectors, rows that go through several ops took 0 to 5 %
 * longer than whole ops did, since memory is read ahead anyway and kernels take many rows at a time with less ado.
 */
#ifndef NMP_CHAIN_H
#define NMP_CHAIN_H

#include "model.h"

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

/* Whether somebody besides op `reader` reads what op `maker` makes. */
int nmp_is_wanted(const nmp_model *m, uint32_t maker, uint32_t reader, uint64_t *budget);

/* An op of a verified model before there is an arena. */
nmp_op nmp_op_at(const nmp_model *m, const nmp_kernels *kernels, const nmp_options *threads, uint32_t i);

int nmp_share_bytes(const nmp_tensor *a, const nmp_tensor *b);

/* ops: the first one and those that follow it, prepared. */
void nmp_chain_run(const nmp_chain *chain, const nmp_op *ops, uint8_t *arena);

#endif
