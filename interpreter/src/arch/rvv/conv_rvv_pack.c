/* Weights packed channel beside channel, and what they prove of the sums. */
#include "arch/rvv/conv_rvv.h"

#ifdef NMP_RVV

#include <string.h>

#include "conv/fits_int32.h"

size_t nmp_conv_rvv_packed(const nmp_conv *c) {
  return sizeof(nmp_rvv_head) + 8 * (size_t)c->out + ((size_t)c->out * c->k << c->w_wide);
}

static int32_t weight(const nmp_conv *c, size_t i) {
  return c->w_wide ? ((const int16_t *)c->w)[i] : ((const int8_t *)c->w)[i];
}

static int fits_int32(const nmp_conv *c) {
  for (size_t i = 0; i < c->out && (c->x_wide || c->w_wide); i++) {
    if (!nmp_fits_int32(0, nmp_x_most(c) * nmp_sum_weights(c, i).magnitudes)) {
      return 0;
    }
  }
  return 1;
}

static enum nmp_rvv_sums sums_of(const nmp_conv *c) {
  int lowest = 0;
  for (size_t i = 0; i < (size_t)c->out * c->k && c->x_wide && c->w_wide; i++) {
    lowest |= weight(c, i) == INT16_MIN;
  }
  return fits_int32(c) ? NMP_RVV_32 : lowest ? NMP_RVV_64 : NMP_RVV_PAIRS;
}

/* [group][k][out / groups]; of depthwise convolutions [k][out]. */
void nmp_conv_rvv_pack(const nmp_conv *c, void *to) {
  nmp_rvv_head *head = to;
  int32_t *bias = (int32_t *)(head + 1), *shift = bias + c->out;
  uint8_t *w = (uint8_t *)(shift + c->out);
  const size_t side = nmp_conv_is_depthwise(c) ? c->out : c->out / c->groups;
  *head = (nmp_rvv_head){.sums = sums_of(c)};
  for (size_t i = 0; i < c->out; i++) {
    bias[i] = nmp_conv_bias(c, i);
    shift[i] = nmp_conv_shift(c, i);
    for (size_t j = 0; j < c->k; j++) {
      const size_t from = i * c->k + j, at = (i / side * c->k + j) * side + i % side;
      memcpy(w + (at << c->w_wide), (const uint8_t *)c->w + (from << c->w_wide), (size_t)1 << c->w_wide);
    }
  }
}

int nmp_conv_rvv_ends(const nmp_conv *c, int most) {
  for (size_t i = 0; i < c->out; i++) {
    const int shift = nmp_conv_shift(c, i);
    const int32_t bias = c->bias ? nmp_conv_bias(c, i) : 0;
    if (shift < 0 || shift > most || bias <= -(1 << 30) || bias >= 1 << 30) {
      return 0;
    }
  }
  return 1;
}

#endif
