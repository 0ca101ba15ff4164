/* Geometry that convolutions with Cortex-M's vectors share. */
#include "arch/cortex_m/mve.h"

#ifdef NMP_MVE

void nmp_mve_full(const nmp_axis *axis, int32_t *first, int32_t *last) {
  const int32_t end = axis->in + axis->before - (axis->kernel - 1) * axis->dilation; /* of the places to start at */
  *first = (axis->before + axis->stride - 1) / axis->stride;
  *first = *first < axis->out ? *first : axis->out;
  *last = end > 0 ? (end - 1) / axis->stride + 1 : 0;
  *last = *last > *first ? *last < axis->out ? *last : axis->out : *first;
}

#endif
