/* Steps of a run, one after another: an op, or ops that are run as one.
 *
 * With NMP_KEEP_STEPS all of them are made when a net is created, with what each decides before it runs; planners
 * (core/fuse/) find the ops that are run as one. Otherwise a step is an op, and is made when it is its turn.
 */
#ifndef NMP_CORE_STEPS_H
#define NMP_CORE_STEPS_H

#include "core/model.h"
#include "ops/common/weighted.h"

typedef struct nmp_step nmp_step;

/* Ops that are run as one. */
typedef struct nmp_fused {
  uint32_t count;   /* of ops; 1: it is an op by itself, and the rest is unused */
  uint32_t at;      /* where its scratch begins in the arena */
  size_t bytes;     /* of the scratch */
  uint8_t *scratch; /* NULL before there is an arena */
  void (*run)(const nmp_step *first);
  struct nmp_by_rows {     /* of row fusion: */
    size_t tasks;          /* that share the rows; 1: the ops are run one after the other after all; 0: no row fusion */
    size_t rows, at_once;  /* of the result; of them, between two ops */
    size_t buffer, worker; /* bytes: of the rows between two ops; of a worker's scratch */
    size_t copy;           /* bytes of the result, where it must not be written before all is read */
  } by_rows;
} nmp_fused;

struct nmp_step {
  nmp_op op;
  nmp_conv_call call; /* of a convolution */
  nmp_fused fused;    /* the ops from this one on */
#if NMP_KEEP_STEPS
  nmp_options threads; /* those of the net, with as many threads as the op may have */
#endif
};

#if NMP_KEEP_STEPS
/* All ops of a model with an arena, each by itself. Their weights go to `packed`, where their kernels want that; or are
 * those of `shared`, the steps of another net of this model with the same options, where that is not NULL.
 */
void nmp_steps_make(const nmp_model *m, nmp_step *steps, uint8_t *packed, const nmp_step *shared);

/* The ops from this one on that are run as one. */
static inline uint32_t nmp_step_ops(const nmp_step *s) {
  return s->fused.by_rows.tasks == 1 ? 1 : s->fused.count;
}

/* Limits what a step may be cut into from now on: tasks for 1 to as many threads as the net was made for. */
void nmp_step_limit(nmp_step *first, size_t threads);
#endif

/* Runs ops [first, last): those that are run as one by themselves where some of them are not to be run. Without
 * NMP_KEEP_STEPS there are no steps to be given.
 */
void nmp_steps_run(const nmp_model *m, const nmp_step *steps, uint32_t first, uint32_t last);

#endif
