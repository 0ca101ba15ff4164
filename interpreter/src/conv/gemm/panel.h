/* Weights as panels: start values and shifts of all channels, then for one k-group after the other their weights. */
#ifndef NMP_CONV_GEMM_PANEL_H
#define NMP_CONV_GEMM_PANEL_H

#include "conv/gemm/shape.h"

#ifdef NMP_HAS_GEMM

/* True when the sum of a channel fits into 32 bits whatever x is; and if so its start, modulo 2^32, and its shift. */
int nmp_gemm_fits_int32(const nmp_conv *c, const nmp_gemm_product *p, size_t channel, int32_t *start, int32_t *shift);

/* A segment's weights of some channels, from number `at` of the first one on, as k-groups of `step` bytes. */
void nmp_gemm_pack_segment(const nmp_conv *c, const nmp_gemm_product *p, const nmp_gemm_shape *s, size_t at,
                           size_t channels, uint8_t *to, size_t step);

/* Starts, shifts and weights of some channels from number `first` on, in up to two vectors: panel and weights. */
void nmp_gemm_pack_panel(const nmp_conv *c, const nmp_gemm_product *p, const nmp_gemm_shape *s, size_t first,
                         size_t channels, size_t vectors, nmp_gemm_panel *panel);

#endif
#endif
