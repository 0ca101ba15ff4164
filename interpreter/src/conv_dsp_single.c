/* One pixel at a time, for what is left over and for fully connected layers of batch 1: channels share the expansion of
 * the pixel. */
#include "conv_dsp.h"

#ifdef NMP_DSP

/* One pixel, int8 x int8, four channels at a time. */
static void single_narrow(const nmp_conv *c, const uint8_t *patch, size_t first, size_t count, size_t pixel) {
  const enum mode mode = mode_of(c);
  const size_t k = c->k, whole = k / 4;
  const uint8_t *w = (const uint8_t *)c->w + first * k;
  for (size_t done = 0; done < count; done += 4, w += 4 * k) {
    const size_t n = count - done < 4 ? count - done : 4;
    const uint8_t *x = patch, *w0 = w, *w1 = n > 1 ? w + k : w, *w2 = n > 2 ? w + 2 * k : w,
                  *w3 = n > 3 ? w + 3 * k : w;
    begin from[4];
    for (size_t i = 0; i < 4; i++) {
      from[i] = begin_of(c, first + done + (i < n ? i : 0));
    }
    int32_t s0 = from[0].start, s1 = from[1].start, s2 = from[2].start, s3 = from[3].start;
    for (size_t i = 0; i < whole; i++) {
      const uint32_t v = dsp_load(x), even = dsp_even(v), odd = dsp_odd(v);
      uint32_t u;
      x += 4;
#define ADD(sum, w) \
  u = dsp_load(w);  \
  w += 4;           \
  sum = dsp_mla2(dsp_odd(u), odd, dsp_mla2(dsp_even(u), even, sum));
      ADD(s0, w0)
      ADD(s1, w1)
      ADD(s2, w2)
      ADD(s3, w3)
#undef ADD
    }
    int32_t sums[4] = {s0, s1, s2, s3};
    for (size_t i = 0; i < n; i++) {
      if (k % 4) {
        uint32_t a, b;
        tail(c, w + i * k, &a, &b);
        sums[i] = dsp_mla2(dsp_odd(dsp_load(x)), b, dsp_mla2(dsp_even(dsp_load(x)), a, sums[i]));
      }
      finish(c, mode, from[i], &sums[i], 1, pixel, first + done + i);
    }
  }
}

/* One pixel in int64, two channels at a time. */
static inline void single_wide(const nmp_conv *c, const uint8_t *patch, size_t first, size_t count, size_t pixel,
                               int x_wide, int w_wide) {
  const enum mode mode = mode_of(c);
  const size_t whole = c->k / 4, row = (size_t)c->k << w_wide;
  const uint8_t *w = (const uint8_t *)c->w + first * row;
  for (size_t done = 0; done < count; done += 2, w += 2 * row) {
    const size_t n = count - done < 2 ? 1 : 2;
    const uint8_t *x = patch, *w0 = w, *w1 = n > 1 ? w + row : w;
    uint32_t pair[2], a, b;
    begin_long from[2];
    for (size_t i = 0; i < 2; i++) {
      from[i] = begin_long_of(c, first + done + (i < n ? i : 0));
    }
    int64_t s0 = from[0].start, s1 = from[1].start;
    for (size_t i = 0; i < whole; i++) {
      expand(pair, 1, x, 4, x_wide, w_wide);
      x += 4 << x_wide;
      a = dsp_load(w0);
      b = w_wide ? dsp_load(w0 + 4) : dsp_odd(a);
      s0 = dsp_mlal2(pair[1], b, dsp_mlal2(pair[0], w_wide ? a : dsp_even(a), s0));
      w0 += 4 << w_wide;
      a = dsp_load(w1);
      b = w_wide ? dsp_load(w1 + 4) : dsp_odd(a);
      s1 = dsp_mlal2(pair[1], b, dsp_mlal2(pair[0], w_wide ? a : dsp_even(a), s1));
      w1 += 4 << w_wide;
    }
    int64_t sums[2] = {s0, s1};
    for (size_t i = 0; i < n; i++) {
      if (c->k % 4) {
        expand(pair, 1, x, 4, x_wide, w_wide);
        tail(c, w + i * row, &a, &b);
        sums[i] = dsp_mlal2(pair[1], b, dsp_mlal2(pair[0], a, sums[i]));
      }
      finish_long(c, mode, from[i], &sums[i], 1, pixel, first + done + i);
    }
  }
}

void nmp_conv_dsp_single(const nmp_conv *c, const uint8_t *patch, size_t first, size_t count, size_t pixel) {
  if (!c->x_wide && !c->w_wide && is_narrow(c)) {
    single_narrow(c, patch, first, count, pixel);
  } else if (c->x_wide) {
    if (c->w_wide) {
      single_wide(c, patch, first, count, pixel, 1, 1);
    } else {
      single_wide(c, patch, first, count, pixel, 1, 0);
    }
  } else if (c->w_wide) {
    single_wide(c, patch, first, count, pixel, 0, 1);
  } else {
    single_wide(c, patch, first, count, pixel, 0, 0);
  }
}

#endif
