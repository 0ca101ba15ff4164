/* Parts that the convolutions of Cortex-M's vectors (MVE, "Helium") share. */
#ifndef NMP_ARCH_CORTEX_M_MVE_H
#define NMP_ARCH_CORTEX_M_MVE_H

#include "arch/cortex_m/conv_mve_plan.h"

#ifdef NMP_MVE

#include <arm_mve.h>

/* Channels [first, first + count) of rows of k factors, one after the other at x, to the output from `pixel` on. */
typedef void nmp_conv_rows_fn(const nmp_conv *c, const void *x, size_t rows, size_t first, size_t count, size_t pixel);
nmp_conv_rows_fn nmp_conv_mve_narrow; /* both factors int8 */
nmp_conv_rows_fn nmp_conv_mve_wide;

/* The same of one row and at least four channels, not both factors int8. */
void nmp_conv_mve_gemv(const nmp_conv *c, const void *x, size_t first, size_t count, size_t pixel);

/* Those that are nmp_mve_is_by_eight. */
void nmp_conv_mve_depthwise(const nmp_conv *c);

/* The output pixels [first, last) of an axis whose windows hold no padding. */
void nmp_mve_full(const nmp_axis *axis, int32_t *first, int32_t *last);

#endif
#endif
