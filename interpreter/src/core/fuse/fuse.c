#include "core/fuse/fuse.h"

#if NMP_KEEP_STEPS
#include "core/fuse/fuse_concat.h"
#include "core/fuse/fuse_rows.h"

/* Fused ops that begin with this one, with their place in the arena. */
static nmp_fused fused_at(const nmp_model *m, uint32_t op, uint64_t *budget) {
  nmp_fused fused = nmp_fuse_concat(m, op, budget);
  if (fused.count == 1) {
    fused = nmp_fuse_rows(m, op, budget);
  }
  for (uint32_t i = 0; i < fused.count; i++) {
    const uint32_t end = nmp_model_slow_end(m, op + i);
    fused.at = end > fused.at ? end : fused.at;
  }
  if (fused.bytes > NMP_BYTES_MAX / 4 || fused.at + fused.bytes > NMP_BYTES_MAX) {
    fused.count = 1;
  }
  fused.scratch = nmp_model_at(m, fused.at);
  return fused;
}

void nmp_fuse(const nmp_model *m, nmp_needs *needs, nmp_step *steps) {
  uint64_t budget = 4096 + 16 * (uint64_t)m->bytes; /* the same finds the same */
  for (uint32_t i = 0; i < m->ops.count;) {
    const nmp_fused fused = fused_at(m, i, &budget);
    if (needs && fused.count > 1) {
      const size_t end = fused.at + fused.bytes;
      needs->scratch = fused.bytes > needs->scratch ? (uint32_t)fused.bytes : needs->scratch;
      needs->arena = end > needs->arena ? (uint32_t)end : needs->arena;
    }
    if (steps) {
      steps[i].fused = fused;
    }
    i += fused.count;
  }
}
#endif
