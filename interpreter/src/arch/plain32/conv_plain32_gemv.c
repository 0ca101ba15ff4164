/* A few pixels of int8 times int8 weights, as fully connected layers have: some channels at a time, whose sums go from
 * the stack to y.
 */
#include "arch/plain32/conv_plain32.h"

#ifdef NMP_PLAIN32

#include "base/fixed.h"

#define CHANNELS 32 /* whose sums are on the stack */

/* Any shift and bias. */
static __attribute__((noinline)) int32_t end_exactly(int32_t sum, int shift, int32_t bias) {
  return nmp_sat(nmp_rsh(sum, shift) + bias, -(1 << 30), 1 << 30);
}

/* Channels from `first` on, whose sums end at `last`, to y. */
static void end(const nmp_conv *from, const int32_t *sums, const int32_t *last, size_t first, uint8_t *y) {
  const nmp_conv c = *from; /* what is written could be its members, for all that the compiler knows */
  const int8_t *exponent = c.exponents + first * c.exponent_step;
  for (; sums < last; sums++, first++, exponent += c.exponent_step, y += (size_t)1 << nmp_y_wide(&c)) {
    const int shift = c.shift - *exponent;
    const int32_t bias = nmp_conv_bias(&c, first);
    /* A shift of 1 or more halves a sum at least. */
    const int small = (unsigned)(shift - 1) < 31 && (uint32_t)bias + (1u << 30) < 1u << 31;
    int32_t v = small ? (((*sums >> (shift - 1)) + 1) >> 1) + bias : end_exactly(*sums, shift, bias);
    if (nmp_conv_adds(&c)) {
      v += *(const int8_t *)y;
    }
    v = v < c.lo ? c.lo : v > c.hi ? c.hi : v;
    if (nmp_y_wide(&c)) {
      *(int16_t *)(void *)y = (int16_t)v;
    } else {
      *y = (uint8_t)v;
    }
  }
}

void nmp_conv_plain32_gemv(const nmp_conv *c, size_t task, size_t tasks) {
  const size_t pixels = nmp_conv_pixels(c), k = c->k;
  int32_t sums[CHANNELS];
  (void)task;
  (void)tasks;
  for (size_t pixel = 0; pixel < pixels; pixel++) {
    const int8_t *x = (const int8_t *)c->x + pixel * k, *w = c->w;
    for (size_t first = 0; first < c->out; first += CHANNELS, w += CHANNELS * k) {
      const size_t n = nmp_min(c->out - first, CHANNELS);
      nmp_plain32_row_8x8(sums, x, w, k, n);
      end(c, sums, sums + n, first, (uint8_t *)c->y + ((pixel * c->out + first) << nmp_y_wide(c)));
    }
  }
}

#endif
