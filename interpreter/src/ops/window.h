/* Sliding windows along one axis, for convolution and pooling. */
#ifndef NMP_OPS_WINDOW_H
#define NMP_OPS_WINDOW_H

#include "check.h"

#define NMP_SIDE_MAX 32767 /* of strides, dilations and paddings */

typedef struct nmp_axis {
  int32_t in, out; /* pixels */
  int32_t kernel, stride, dilation, before, after;
} nmp_axis;

/* The output size follows from the rest, and every coordinate fits int32. */
nmp_rule nmp_check_axis(const nmp_axis *axis);

/* Every window holds at least one pixel that is not padding. */
nmp_rule nmp_check_hits(const nmp_axis *axis);

/* The elements [first, last) of window number `position` that are pixels and not padding. */
void nmp_clip(const nmp_axis *axis, int32_t position, int32_t *first, int32_t *last);

/* The pixel, or a place in the padding, under element k of window number `position`. */
static inline int32_t nmp_pixel(const nmp_axis *axis, int32_t position, int32_t k) {
  return position * axis->stride - axis->before + k * axis->dilation;
}

#endif
