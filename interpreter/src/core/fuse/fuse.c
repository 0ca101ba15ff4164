#include "core/fuse/fuse.h"

#include "core/fuse/fuse_concat.h"
#include "core/fuse/fuse_rows.h"

uint64_t nmp_chain_budget(const nmp_model *m) {
  return 4096 + 16 * (uint64_t)m->bytes;
}

nmp_chain nmp_chain_at(const nmp_model *m, const nmp_kernels *kernels, const nmp_options *threads, uint32_t op,
                       uint64_t *budget) {
  size_t scratch = 0;
  const uint32_t views = nmp_views_at(m, kernels, threads, op, budget, &scratch);
  nmp_chain chain = {.count = views, .views = views > 0, .scratch = scratch};
  if (views == 0) {
    chain = nmp_chain_rows_at(m, kernels, threads, op, budget);
  }
  for (uint32_t i = 0; i < chain.count; i++) {
    const uint32_t end = nmp_model_live_end(m, op + i);
    chain.at = end > chain.at ? end : chain.at;
  }
  if (chain.scratch > NMP_BYTES_MAX / 4 || chain.at + chain.scratch + chain.copy > NMP_BYTES_MAX) {
    chain.count = 0;
  }
  return chain;
}

void nmp_chain_run(const nmp_chain *chain, const nmp_op *ops, uint8_t *arena) {
  if (chain->views) {
    nmp_views_run(ops, chain->count, arena + chain->at);
  } else {
    nmp_chain_rows_run(chain, ops, arena);
  }
}
