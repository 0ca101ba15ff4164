/* What the convolutions of Cortex-M's DSP extension share: results, and what weights are multiplied with. */
#ifndef NMP_CONV_DSP_H
#define NMP_CONV_DSP_H

#include "dsp.h"
#include "fixed.h"
#include "patch.h"

#ifdef NMP_DSP

nmp_conv_choose_fn nmp_conv_dsp_depthwise; /* NULL: none of its own */

/* Channels [first, first + count) of one pixel from its patch, whose elements are followed by zeros up to a multiple of
 * four. */
void nmp_conv_dsp_single(const nmp_conv *c, const uint8_t *patch, size_t first, size_t count, size_t pixel);

/* int8 x int8 products are at most 2^14 and int16 x int8 ones 2^22: their sum is at most 2^30. */
static inline int is_narrow(const nmp_conv *c) {
  return !c->w_wide && c->k <= (c->x_wide ? 256u : 65536u);
}

/* Four elements to the words that meet them in `to` and, `step` words later, its other half. */
static inline uint32_t *expand(uint32_t *to, size_t step, const uint8_t *x, size_t elements, int x_wide, int w_wide) {
  for (; elements >= 4; elements -= 4, to += 2 * step) {
    const uint32_t a = dsp_load(x);
    if (x_wide) {
      const uint32_t b = dsp_load(x + 4);
      to[0] = w_wide ? a : dsp_low(a, b);
      to[step] = w_wide ? b : dsp_high(a, b);
      x += 8;
    } else {
      const uint32_t even = dsp_even(a), odd = dsp_odd(a);
      to[0] = w_wide ? dsp_low(even, odd) : even;
      to[step] = w_wide ? dsp_high(even, odd) : odd;
      x += 4;
    }
  }
  return to;
}

/* The last 1..3 elements of a row of k weights, expanded to two words. Nothing after the row is read. */
static inline void tail(const nmp_conv *c, const uint8_t *row, uint32_t *a, uint32_t *b) {
  uint16_t last[4] = {0, 0, 0, 0};
  uint32_t word = 0;
  if (c->w_wide) {
    memcpy(last, row + (c->k / 4 * 8), c->k % 4 * 2);
    *a = dsp_load(last);
    *b = dsp_load(last + 2);
    return;
  }
  if (c->k >= 4) {
    word = dsp_load(row + c->k - 4) >> (32 - c->k % 4 * 8);
  } else {
    for (size_t i = c->k; i-- > 0;) {
      word = word << 8 | row[i];
    }
  }
  *a = dsp_even(word);
  *b = dsp_odd(word);
}

enum mode { INT8, POSITIVE8, INT16, POSITIVE16, OTHER };

static inline enum mode mode_of(const nmp_conv *c) {
  const int32_t most = c->y_wide ? 32767 : 127;
  if (c->hi != most || (c->lo != 0 && c->lo != -most - 1)) {
    return OTHER;
  }
  return c->y_wide ? (c->lo ? INT16 : POSITIVE16) : c->lo ? INT8 : POSITIVE8;
}

/* Values of one channel to neighbouring pixels, `step` bytes apart. */
static inline void put(const nmp_conv *c, enum mode mode, const int32_t *values, int n, uint8_t *y, size_t step) {
#define EACH(TYPE, EXPRESSION)               \
  for (int i = 0; i < n; i++, y += step) {   \
    const int32_t v = values[i];             \
    *(TYPE *)(void *)y = (TYPE)(EXPRESSION); \
  }
  switch (mode) {
    case INT8:
      EACH(int8_t, dsp_int8(v))
      break;
    case POSITIVE8:
      EACH(int8_t, dsp_positive8(v))
      break;
    case INT16:
      EACH(int16_t, dsp_int16(v))
      break;
    case POSITIVE16:
      EACH(int16_t, dsp_positive16(v))
      break;
    case OTHER:
      for (int i = 0; i < n; i++, y += step) {
        const int32_t v = nmp_sat(values[i], c->lo, c->hi);
        if (c->y_wide) {
          *(int16_t *)(void *)y = (int16_t)v;
        } else {
          *(int8_t *)y = (int8_t)v;
        }
      }
  }
#undef EACH
}

/* Where the sum of a channel starts, and the shift at its end; below 0 where such a start could overflow: then the sum
 * starts at 0 and `exact` ends it.
 */
typedef struct begin {
  int32_t start;
  int shift;
} begin;

typedef struct begin_long {
  int64_t start;
  int shift;
} begin_long;

/* |start| < 2^30, as is the sum of the products */
static inline begin begin_of(const nmp_conv *c, size_t channel) {
  const int shift = nmp_conv_shift(c, channel);
  const int32_t bias = nmp_conv_bias(c, channel);
  if (shift < 1 || shift > 29 || (uint32_t)(bias ^ bias >> 31) >> (30 - shift) != 0) {
    return (begin){0, -1};
  }
  return (begin){(int32_t)((uint32_t)(2 * bias + 1) << (shift - 1)), shift};
}

/* |sum of the products| <= k * 2^30 and |bias| < 2^30, so that the sum is below 2^62 and the result below 2^31. */
static inline begin_long begin_long_of(const nmp_conv *c, size_t channel) {
  const int shift = nmp_conv_shift(c, channel);
  const int32_t bias = nmp_conv_bias(c, channel);
  if (shift < 1 || shift > 31 || c->k >> shift != 0 || (bias ^ bias >> 31) >> 30 != 0) {
    return (begin_long){0, -1};
  }
  return (begin_long){(int64_t)((uint64_t)(2 * (int64_t)bias + 1) << (shift - 1)), shift};
}

/* The result of any sum that started at 0. */
static inline int32_t exact(const nmp_conv *c, size_t channel, int64_t sum) {
  return nmp_sat(nmp_rsh(sum, nmp_conv_shift(c, channel)) + nmp_conv_bias(c, channel), c->lo, c->hi);
}

static inline uint8_t *output(const nmp_conv *c, size_t pixel, size_t channel) {
  return (uint8_t *)c->y + ((pixel * c->out + channel) << c->y_wide);
}

static inline void finish(const nmp_conv *c, enum mode mode, begin from, int32_t *sums, int n, size_t pixel,
                          size_t channel) {
  if (from.shift < 0) {
    for (int i = 0; i < n; i++) {
      sums[i] = exact(c, channel, sums[i]);
    }
  } else {
    for (int i = 0; i < n; i++) {
      sums[i] >>= from.shift;
    }
  }
  put(c, mode, sums, n, output(c, pixel, channel), (size_t)c->out << c->y_wide);
}

static inline void finish_long(const nmp_conv *c, enum mode mode, begin_long from, const int64_t *sums, int n,
                               size_t pixel, size_t channel) {
  int32_t values[2];
  for (int i = 0; i < n; i++) {
    const uint32_t low = (uint32_t)sums[i], high = (uint32_t)((uint64_t)sums[i] >> 32);
    values[i] = from.shift < 0 ? exact(c, channel, sums[i]) : (int32_t)(low >> from.shift | high << (32 - from.shift));
  }
  put(c, mode, values, n, output(c, pixel, channel), (size_t)c->out << c->y_wide);
}

#endif
#endif
