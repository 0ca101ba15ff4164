/* Matrix products of Cortex-M's DSP extension.
 *
 * 1. Pixels go by four or two. Their patches are expanded to int16 into the scratch, in the order in which SXTB16
 * expands a word of int8 weights (elements 0 and 2, then 1 and 3; plain order for int16 weights), and interleaved word
 * by word, so that one LDM brings what meets one word of weights.
 * 2. What is left over, and a fully connected layer of batch 1, goes pixel by pixel: two or four channels share the
 *    expansion of the pixel.
 *
 * Sums are int32 where the products and a start of less than 2^30 cannot overflow it, else int64. Four pixels need
 * twice the room of two: it is taken from the end of y, until the results get there.
 */
#include "dsp.h"
#include "fixed.h"
#include "patch.h"

#ifdef NMP_DSP

#define SCRATCH_FOUR 640 /* most bytes of scratch for which four pixels go in it */

/* int8 x int8 products are at most 2^14 and int16 x int8 ones 2^22: their sum is at most 2^30. */
static int is_narrow(const nmp_conv *c) {
  return !c->w_wide && c->k <= (c->x_wide ? 256u : 65536u);
}

/* Words of an expanded patch: two for every four elements. */
static size_t words(const nmp_conv *c) {
  return (c->k + 3u) / 4 * 2;
}

static size_t patch_bytes(const nmp_conv *c, size_t pixels) {
  return pixels * words(c) * sizeof(uint32_t);
}

/* Patches whose taps are not whole words are copied together first. */
static int is_ragged(const nmp_conv *c) {
  return c->in / c->groups % 4 != 0 || c->k % 4 != 0;
}

static size_t linear_bytes(const nmp_conv *c) {
  return words(c) * 2 << c->x_wide;
}

static size_t pixels_in_scratch(const nmp_conv *c) {
  const size_t pixels = nmp_conv_pixels(c);
  if (pixels >= 4 && is_narrow(c) && patch_bytes(c, 4) <= SCRATCH_FOUR) {
    return 4;
  }
  return pixels >= 2 ? 2 : 0;
}

/* The patches, or one that is copied; behind them a ragged one on its way. */
static size_t scratch(const nmp_conv *c) {
  const size_t patches = patch_bytes(c, pixels_in_scratch(c));
  const size_t linear = nmp_conv_is_direct(c) && c->k % 4 == 0 ? 0 : linear_bytes(c);
  const size_t both = is_ragged(c) ? patches + linear : patches > linear ? patches : linear;
  return (both + 15) / 16 * 16;
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

static uint32_t *expand_any(const nmp_conv *c, uint32_t *to, size_t step, const uint8_t *x, size_t elements) {
  if (c->x_wide) {
    return c->w_wide ? expand(to, step, x, elements, 1, 1) : expand(to, step, x, elements, 1, 0);
  }
  return c->w_wide ? expand(to, step, x, elements, 0, 1) : expand(to, step, x, elements, 0, 0);
}

static uint32_t *fill(const nmp_conv *c, uint32_t *to, size_t step, size_t first, int32_t taps) {
  const size_t tap = c->in / c->groups;
  for (; taps > 0; taps--) {
    if (c->pad) {
      to = expand_any(c, to, step, nmp_padding(c, first), tap);
    } else {
      for (size_t i = 0; i < tap; i += 4, to += 2 * step) {
        to[0] = to[step] = 0;
      }
    }
  }
  return to;
}

/* The patch of one pixel as it is, with zeros up to a whole word. */
static const uint8_t *linear(const nmp_conv *c, size_t pixel, size_t group, uint8_t *to) {
  const size_t bytes = (size_t)c->k << c->x_wide;
  if (nmp_conv_is_direct(c) && c->k % 4 == 0) {
    return (const uint8_t *)c->x + pixel * bytes;
  }
  memset(to + linear_bytes(c) - 8, 0, 8);
  nmp_gather(c, nmp_locate(c, pixel), group, to);
  return to;
}

/* The expanded patch of one pixel: every `step`-th word of `to`. */
static void gather(const nmp_conv *c, size_t pixel, size_t group, uint32_t *to, size_t step, uint8_t *spare) {
  if (nmp_conv_is_direct(c) || is_ragged(c)) {
    expand_any(c, to, step, linear(c, pixel, group, spare), words(c) * 2);
    return;
  }
  const nmp_place at = nmp_locate(c, pixel);
  const size_t tap = c->in / c->groups, first = group * tap;
  const int whole = c->h.dilation == 1 && c->groups == 1;
  int32_t left, right;
  nmp_clip(&c->h, at.x, &left, &right);
  right = right > left ? right : left;
  for (int32_t ky = 0; ky < c->v.kernel; ky++) {
    const int32_t iy = nmp_pixel(&c->v, at.y, ky);
    if (!nmp_inside(&c->v, iy)) {
      to = fill(c, to, step, first, c->h.kernel);
      continue;
    }
    to = fill(c, to, step, first, left);
    for (int32_t kx = left, run; kx < right; kx += run) {
      run = whole ? right - kx : 1;
      to = expand_any(c, to, step, nmp_element(c, at, iy, nmp_pixel(&c->h, at.x, kx), first), (size_t)run * tap);
    }
    to = fill(c, to, step, first, c->h.kernel - right);
  }
}

/* Weights. */

/* The last 1..3 elements of a row of k weights, expanded to two words. Nothing after the row is read. */
static void tail(const nmp_conv *c, const uint8_t *row, uint32_t *a, uint32_t *b) {
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

/* Every loop multiplies a row of `n` groups of four weights with the patches of two or four pixels. Four groups are one
 * round, the rest goes one by one.
 */
#define LOOP(STEP)           \
  "subs %[n], #4\n"          \
  "blt 2f\n"                 \
  "1:\n" STEP STEP STEP STEP \
  "subs %[n], #4\n"          \
  "bge 1b\n"                 \
  "2: adds %[n], #4\n"       \
  "beq 4f\n"                 \
  "3:\n" STEP                \
  "subs %[n], #1\n"          \
  "bne 3b\n"                 \
  "4:\n"

/* 13 instructions for 16 products */
static inline void times4(int32_t sum[4], const uint32_t *x, const uint8_t *w, size_t n) {
  int32_t a = sum[0], b = sum[1], c = sum[2], d = sum[3];
  __asm__ volatile(LOOP("ldr r4, [%[w]], #4\n"
                        "ldmia %[x]!, {r0-r3}\n"
                        "sxtb16 r5, r4\n"
                        "smlad %[a], r0, r5, %[a]\n"
                        "smlad %[b], r1, r5, %[b]\n"
                        "smlad %[c], r2, r5, %[c]\n"
                        "smlad %[d], r3, r5, %[d]\n"
                        "ldmia %[x]!, {r0-r3}\n"
                        "sxtb16 r4, r4, ror #8\n"
                        "smlad %[a], r0, r4, %[a]\n"
                        "smlad %[b], r1, r4, %[b]\n"
                        "smlad %[c], r2, r4, %[c]\n"
                        "smlad %[d], r3, r4, %[d]\n")
                   : [a] "+r"(a), [b] "+r"(b), [c] "+r"(c), [d] "+r"(d), [x] "+r"(x), [w] "+r"(w), [n] "+r"(n)
                   :
                   : "r0", "r1", "r2", "r3", "r4", "r5", "cc", "memory");
  sum[0] = a;
  sum[1] = b;
  sum[2] = c;
  sum[3] = d;
}

/* 8 instructions for 8 products */
static inline void times2(int32_t sum[2], const uint32_t *x, const uint8_t *w, size_t n) {
  int32_t a = sum[0], b = sum[1];
  __asm__ volatile(LOOP("ldr r4, [%[w]], #4\n"
                        "ldmia %[x]!, {r0-r3}\n"
                        "sxtb16 r5, r4\n"
                        "sxtb16 r4, r4, ror #8\n"
                        "smlad %[a], r0, r5, %[a]\n"
                        "smlad %[b], r1, r5, %[b]\n"
                        "smlad %[a], r2, r4, %[a]\n"
                        "smlad %[b], r3, r4, %[b]\n")
                   : [a] "+r"(a), [b] "+r"(b), [x] "+r"(x), [w] "+r"(w), [n] "+r"(n)
                   :
                   : "r0", "r1", "r2", "r3", "r4", "r5", "cc", "memory");
  sum[0] = a;
  sum[1] = b;
}

/* 6 instructions for 8 products with int16 weights, 8 with int8 ones */
static inline void times2_long(int64_t sum[2], const uint32_t *x, const uint8_t *w, size_t n, int w_wide) {
  int64_t a = sum[0], b = sum[1];
#define ACCUMULATE                \
  "smlald %Q[a], %R[a], r0, r4\n" \
  "smlald %Q[b], %R[b], r1, r4\n" \
  "smlald %Q[a], %R[a], r2, r5\n" \
  "smlald %Q[b], %R[b], r3, r5\n"
  if (!w_wide) {
    __asm__ volatile(LOOP("ldr r5, [%[w]], #4\n"
                          "ldmia %[x]!, {r0-r3}\n"
                          "sxtb16 r4, r5\n"
                          "sxtb16 r5, r5, ror #8\n" ACCUMULATE)
                     : [a] "+r"(a), [b] "+r"(b), [x] "+r"(x), [w] "+r"(w), [n] "+r"(n)
                     :
                     : "r0", "r1", "r2", "r3", "r4", "r5", "cc", "memory");
  } else if ((uintptr_t)w % 4 == 0) {
    __asm__ volatile(LOOP("ldrd r4, r5, [%[w]], #8\n"
                          "ldmia %[x]!, {r0-r3}\n" ACCUMULATE)
                     : [a] "+r"(a), [b] "+r"(b), [x] "+r"(x), [w] "+r"(w), [n] "+r"(n)
                     :
                     : "r0", "r1", "r2", "r3", "r4", "r5", "cc", "memory");
  } else {
    for (; n > 0; n--, x += 4, w += 8) {
      const uint32_t first = dsp_load(w), second = dsp_load(w + 4);
      a = dsp_mlal2(x[2], second, dsp_mlal2(x[0], first, a));
      b = dsp_mlal2(x[3], second, dsp_mlal2(x[1], first, b));
    }
  }
#undef ACCUMULATE
  sum[0] = a;
  sum[1] = b;
}

/* Results. */

enum mode { INT8, POSITIVE8, INT16, POSITIVE16, OTHER };

static enum mode mode_of(const nmp_conv *c) {
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

/* Where the sum of a channel starts, and the shift at its end. shift < 0: such a start is not possible: the sum starts
 * at 0. */
typedef struct begin {
  int32_t start;
  int shift;
} begin;

/* |start| < 2^30 */
static inline begin begin_of(const nmp_conv *c, size_t channel) {
  const int shift = nmp_conv_shift(c, channel);
  const int32_t bias = nmp_conv_bias(c, channel);
  if (shift < 1 || shift > 29 || (uint32_t)(bias ^ bias >> 31) >> (30 - shift) != 0) {
    return (begin){0, -1};
  }
  return (begin){(int32_t)((uint32_t)(2 * bias + 1) << (shift - 1)), shift};
}

/* The result of any sum that started at 0. */
static int32_t exact(const nmp_conv *c, size_t channel, int64_t sum) {
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

/* Channels [first, first + count) of `n` pixels, 4 or 2, in int32. */
static inline void narrow(const nmp_conv *c, const uint32_t *x, size_t n, size_t first, size_t count, size_t pixel) {
  const enum mode mode = mode_of(c);
  const size_t whole = c->k / 4;
  const uint8_t *w = (const uint8_t *)c->w + first * c->k;
  for (size_t channel = first; channel < first + count; channel++, w += c->k) {
    const begin from = begin_of(c, channel);
    int32_t sums[4] = {from.start, from.start, from.start, from.start};
    if (n == 4) {
      times4(sums, x, w, whole);
    } else {
      times2(sums, x, w, whole);
    }
    if (c->k % 4) {
      uint32_t a, b;
      tail(c, w, &a, &b);
      for (size_t i = 0; i < n; i++) {
        sums[i] = dsp_mla2(x[(whole * 2 + 1) * n + i], b, dsp_mla2(x[whole * 2 * n + i], a, sums[i]));
      }
    }
    finish(c, mode, from, sums, (int)n, pixel, channel);
  }
}

static void narrow4(const nmp_conv *c, const uint32_t *x, size_t first, size_t count, size_t pixel) {
  narrow(c, x, 4, first, count, pixel);
}

static void narrow2(const nmp_conv *c, const uint32_t *x, size_t first, size_t count, size_t pixel) {
  narrow(c, x, 2, first, count, pixel);
}

/* A sum that started at 0; with 2^shift > k it is below 2^31 after the shift. */
static inline int32_t scale_long(const nmp_conv *c, size_t channel, int64_t sum) {
  const int shift = nmp_conv_shift(c, channel);
  const int32_t bias = nmp_conv_bias(c, channel);
  return nmp_sat(nmp_rsh(sum, shift) + bias, c->lo, c->hi);
}

static void store(const nmp_conv *c, size_t pixel, size_t channel, int32_t value) {
  uint8_t *y = output(c, pixel, channel);
  if (c->y_wide) {
    *(int16_t *)(void *)y = (int16_t)value;
  } else {
    *(int8_t *)y = (int8_t)value;
  }
}

/* The same in int64, of two pixels. */
static void wide2(const nmp_conv *c, const uint32_t *x, size_t first, size_t count, size_t pixel) {
  const size_t whole = c->k / 4, row = (size_t)c->k << c->w_wide;
  const uint8_t *w = (const uint8_t *)c->w + first * row;
  for (size_t channel = first; channel < first + count; channel++, w += row) {
    int64_t sums[2] = {0, 0};
    times2_long(sums, x, w, whole, c->w_wide);
    if (c->k % 4) {
      uint32_t a, b;
      tail(c, w, &a, &b);
      for (size_t i = 0; i < 2; i++) {
        sums[i] = dsp_mlal2(x[(whole * 2 + 1) * 2 + i], b, dsp_mlal2(x[whole * 4 + i], a, sums[i]));
      }
    }
    for (size_t i = 0; i < 2; i++) {
      store(c, pixel + i, channel, scale_long(c, channel, sums[i]));
    }
  }
}

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
  const size_t whole = c->k / 4, row = (size_t)c->k << w_wide;
  const uint8_t *w = (const uint8_t *)c->w + first * row;
  for (size_t done = 0; done < count; done += 2, w += 2 * row) {
    const size_t n = count - done < 2 ? 1 : 2;
    const uint8_t *x = patch, *w0 = w, *w1 = n > 1 ? w + row : w;
    uint32_t pair[2], a, b;
    int64_t s0 = 0, s1 = 0;
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
      store(c, pixel, first + done + i, scale_long(c, first + done + i, sums[i]));
    }
  }
}

static void single(const nmp_conv *c, const uint8_t *patch, size_t first, size_t count, size_t pixel) {
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

/* The last bytes of y, as far as they are y's own and not yet written: room for four patches. NULL: none. */
static uint8_t *room_in_y(const nmp_conv *c) {
  const uint8_t *x = c->x;
  const size_t images = c->images, read = images * (size_t)c->v.in * (size_t)c->h.in * c->in << c->x_wide;
  uint8_t *y = c->y, *end = output(c, nmp_conv_pixels(c), 0);
  const size_t bytes = patch_bytes(c, 4);
  if (!is_narrow(c) || (size_t)(end - y) < bytes + 4 ||
      ((uintptr_t)y < (uintptr_t)(x + read) && (uintptr_t)x < (uintptr_t)end)) {
    return NULL;
  }
  return end - bytes - (uintptr_t)(end - bytes) % 4;
}

static void run(const nmp_conv *c, size_t task, size_t tasks) {
  const size_t pixels = nmp_conv_pixels(c), channels = c->out / c->groups, held = pixels_in_scratch(c);
  uint8_t *const room = held == 2 ? room_in_y(c) : NULL;
  uint8_t *const spare = (uint8_t *)c->scratch + (is_ragged(c) ? patch_bytes(c, held) : 0);
  (void)task;
  (void)tasks;
  for (size_t pixel = 0, n; pixel < pixels; pixel += n) {
    uint32_t *x = c->scratch;
    n = held == 4 ? 4 : 2;
    if (room && output(c, pixel + 4, 0) <= room) {
      n = 4;
      x = (uint32_t *)(void *)room;
    }
    n = pixels - pixel >= n ? n : pixels - pixel >= 2 ? 2 : 1;
    for (size_t group = 0; group < c->groups; group++) {
      if (n == 1) {
        single(c, linear(c, pixel, group, spare), group * channels, channels, pixel);
        continue;
      }
      for (size_t i = 0; i < n; i++) {
        gather(c, pixel + i, group, x + i, n, spare);
      }
      (n == 4 ? narrow4 : is_narrow(c) ? narrow2 : wide2)(c, x, group * channels, channels, pixel);
    }
  }
}

const nmp_conv_kernel *nmp_conv_dsp(const nmp_conv *c) {
  static const nmp_conv_kernel products = {NULL, NULL, scratch, NULL, run};
  return nmp_conv_is_depthwise(c) ? nmp_conv_portable(c) : &products;
}

#endif
