/* Weights as panels: start values and shifts of all channels, then for one k-group after the other their weights. */
#ifndef NMP_CONV_GEMM_PACK_H
#define NMP_CONV_GEMM_PACK_H

#include "conv/gemm/shape.h"

#ifdef NMP_HAS_GEMM

/* Whether the sum of a channel fits into 32 bits whatever x is; and if so its start, modulo 2^32, and its shift. */
int nmp_gemm_fits_int32(const nmp_conv *c, const nmp_gemm_product *p, size_t channel, int32_t *start, int32_t *shift);

/* A segment's weights of some channels, from number `at` of the first one on, as k-groups of `step` bytes. */
void nmp_gemm_pack_segment(const nmp_conv *c, const nmp_gemm_product *p, const nmp_gemm_shape *s, size_t at,
                           size_t channels, uint8_t *to, size_t step);

/* What nmp_gemm_pack does for gemv. Packs only if all channels fit, and returns whether they do. */
int nmp_gemv_pack(const nmp_conv *c, const nmp_gemm_product *p, nmp_gemm_shape *s, uint8_t *to);

#endif
#endif
