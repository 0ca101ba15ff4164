/* The loops over padded rows, panels and tiles. run.c divides the work; a product that has blocks and whose panels all
 * have a fits_int32 proof goes by blocks.c, also one that has exact blocks; others by tiles.c, unless the product has
 * lines of its own; one output pixel goes by gemv.c.
 */
#ifndef NMP_CONV_GEMM_RUN_H
#define NMP_CONV_GEMM_RUN_H

#include "conv/gemm/load.h"

#ifdef NMP_HAS_GEMM

/* Number of the n items that the tasks before this one have. */
static inline size_t nmp_gemm_share(size_t n, size_t task, size_t tasks) {
  return tasks == 1 ? n * task : n * task / tasks;
}

nmp_gemm_lines_fn nmp_gemm_run_tiles, nmp_gemm_run_blocks;

/* Packs the strips of one pixel if the sums of all channels fit 32 bits. Returns 0, and packs nothing, otherwise. */
int nmp_gemv_pack(const nmp_conv *c, const nmp_gemm_product *p, nmp_gemm_shape *s, uint8_t *to);

/* Share `task` of `tasks` of the strips. */
void nmp_gemv_run(const nmp_conv *c, const nmp_gemm_product *p, size_t task, size_t tasks);

#endif
#endif
