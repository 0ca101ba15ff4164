/* Geometry and exponents, as convolutions with Cortex-M's vectors want to know them. */
#include "arch/cortex_m/mve.h"

#ifdef NMP_MVE

int nmp_mve_most(const int8_t *exponents, uint32_t n) {
  int8_t most = exponents[0];
  for (uint32_t i = 0; i < n; i += 16) {
    const mve_pred16_t left = vctp8q(n - i);
    most = vmaxvq_p_s8(most, vldrbq_z_s8(exponents + i, left), left);
  }
  return most;
}

void nmp_mve_full(const nmp_axis *axis, int32_t *first, int32_t *last) {
  const int32_t end = axis->in + axis->before - (axis->kernel - 1) * axis->dilation; /* of the places to start at */
  *first = (axis->before + axis->stride - 1) / axis->stride;
  *first = *first < axis->out ? *first : axis->out;
  *last = end > 0 ? (end - 1) / axis->stride + 1 : 0;
  *last = *last > *first ? *last < axis->out ? *last : axis->out : *first;
}

#endif
