/* The loops over padded rows, panels and tiles. run.c divides the work; a product that has blocks and whose panels all
 * have a fits_int32 proof goes by blocks.c, others by tiles.c; one output pixel by gemv.c.
 */
#ifndef NMP_CONV_GEMM_RUN_H
#define NMP_CONV_GEMM_RUN_H

#include "conv/gemm/load.h"

#ifdef NMP_HAS_GEMM

/* How many of n the tasks before this one have. */
static inline size_t nmp_gemm_share(size_t n, size_t task, size_t tasks) {
  return tasks == 1 ? n * task : n * task / tasks;
}

/* The panels [first, last) of all groups times the lines whose padded rows are there. The first line goes to y. */
void nmp_gemm_run_tiles(const nmp_padded *padded, size_t first, size_t last, size_t lines, uint8_t *y);
void nmp_gemm_run_blocks(const nmp_padded *padded, size_t first, size_t last, size_t lines, uint8_t *y);

/* Share `task` of `tasks` of the strips. */
void nmp_gemv_run(const nmp_conv *c, const nmp_gemm_product *p, size_t task, size_t tasks);

#endif
#endif
