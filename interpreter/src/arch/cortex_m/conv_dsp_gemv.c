/* gemv: one pixel at a time, for what is left over and for fully connected layers of batch 1. Channels share the
 * expansion of the pixel. And what else the DSP convolutions need once a channel or more rarely.
 */
#include "arch/cortex_m/conv_dsp.h"
#include "base/fixed.h"

#ifdef NMP_DSP

static enum mode mode_of(const nmp_conv *c) {
  if (!nmp_y_wide(c)) {
    return NMP_CONV_RANGES && nmp_conv_has_range(c) ? RANGE8 : c->lo == 0 ? POSITIVE8 : INT8;
  }
  return c->hi != 32767 ? OTHER : c->lo == 0 ? POSITIVE16 : c->lo == -32768 ? INT16 : OTHER;
}

/* bits < 32 */
static inline int fits(int32_t value, int bits) {
  return (uint32_t)(value ^ value >> 31) >> bits == 0;
}

/* c's members are copied: what is written could be they, for all that the compiler knows. bits: of biases; 0: any. */
DSP_INLINE int prepare(const nmp_conv *c, size_t first, size_t count, int narrow, uint8_t bits, const ends *e) {
  nmp_conv from = *c;
  int32_t *start = e->start;
  uint8_t *shifts = e->shift;
  int all = 1;
  from.bias_bits = bits ? bits : c->bias_bits;
  for (size_t i = first; i < first + count; i++) {
    const int shift = nmp_conv_shift(&from, i);
    const int32_t bias = nmp_conv_bias(&from, i);
    int safe;
    if (narrow) {
      safe = (unsigned)(shift - 1) < 29 && fits(bias, 30 - shift);
      *start++ = safe ? (int32_t)((uint32_t)(2 * bias + 1) << (shift - 1)) : 0;
    } else {
      safe = (unsigned)(shift - 1) < 31 && (uint64_t)from.k * 2 <= (uint64_t)1 << shift && fits(bias, 30);
      *start++ = bias;
    }
    *shifts++ = (uint8_t)(safe ? shift : 0);
    all &= safe;
  }
  return all;
}

void nmp_conv_dsp_prepare(const nmp_conv *c, size_t first, size_t count, int narrow, void *room, ends *e) {
  const int always = NMP_ACTIVATION_BITS == 8 && NMP_WEIGHT_BITS == 8 && NMP_CONV_K_MAX <= 65536;
  *e = (ends){.mode = mode_of(c), .first = first, .start = room, .shift = (uint8_t *)room + count * sizeof(int32_t)};
#if NMP_CONV_RANGES
  e->lo = (uint8_t)c->lo * 0x01010101u;
  e->hi = (uint8_t)c->hi * 0x01010101u;
#endif
  const int all = !always && !narrow   ? prepare(c, first, count, 0, 0, e)
                  : c->bias_bits == 16 ? prepare(c, first, count, 1, 16, e)
                                       : prepare(c, first, count, 1, 0, e);
  e->bytes = (uint8_t)(all && e->mode <= RANGE8);
}

void nmp_conv_dsp_clip(const nmp_conv *c, int32_t value, uint8_t *y) {
  *(int16_t *)(void *)y = (int16_t)(value < c->lo ? c->lo : value > c->hi ? c->hi : value);
}

void nmp_conv_dsp_put(const nmp_conv *c, int32_t value, uint8_t *y) {
  value += nmp_conv_adds(c) ? *(int8_t *)y : 0;
  *(int8_t *)y = (int8_t)(value < c->lo ? c->lo : value > c->hi ? c->hi : value);
}

void nmp_conv_dsp_store(const nmp_conv *c, size_t channel, int64_t sum, uint8_t *y) {
  const int64_t result = nmp_rsh(sum, nmp_conv_shift(c, channel)) + nmp_conv_bias(c, channel);
  const int32_t value = nmp_sat(result + (nmp_conv_adds(c) ? *(int8_t *)y : 0), c->lo, c->hi);
  if (nmp_y_wide(c)) {
    *(int16_t *)(void *)y = (int16_t)value;
  } else {
    *(int8_t *)y = (int8_t)value;
  }
}

void nmp_conv_dsp_tail(const nmp_conv *c, const uint8_t *row, uint32_t pair[2]) {
  const size_t n = c->k % 4;
  uint32_t word = 0;
  if (nmp_w_wide(c)) {
    const uint8_t *last = row + (c->k - n) * 2;
    const uint16_t *one = (const uint16_t *)(const void *)(last + (n - 1) / 2 * 4);
    pair[0] = n == 1 ? *one : dsp_load(last);
    pair[1] = n == 3 ? *one : 0;
    return;
  }
  if (c->k >= 4) {
    word = dsp_load(row + c->k - 4) >> (32 - n * 8);
  } else {
    for (size_t i = n; i-- > 0;) {
      word = word << 8 | row[i];
    }
  }
  pair[0] = dsp_even(word);
  pair[1] = dsp_odd(word);
}

/* Two words of x to r0 and r1, as they meet weights of a width. */
#define LOAD_8_8         \
  "ldr r1, [%[x]], #4\n" \
  "sxtb16 r0, r1\n"      \
  "sxtb16 r1, r1, ror #8\n"
#define LOAD_8_16               \
  "ldr r1, [%[x]], #4\n"        \
  "sxtb16 r2, r1\n"             \
  "sxtb16 r1, r1, ror #8\n"     \
  "pkhbt r0, r2, r1, lsl #16\n" \
  "pkhtb r1, r1, r2, asr #16\n"
#define LOAD_16_8               \
  "ldr r2, [%[x]], #4\n"        \
  "ldr r1, [%[x]], #4\n"        \
  "pkhbt r0, r2, r1, lsl #16\n" \
  "pkhtb r1, r1, r2, asr #16\n"
#define LOAD_16_16       \
  "ldr r0, [%[x]], #4\n" \
  "ldr r1, [%[x]], #4\n"

/* Sums of four or two channels of int8 weights in int32, from `start` on: rows of `n` groups of four weights, k bytes
 * apart. Four channels take 23 instructions for 16 products with x of int8, 24 with int16.
 */
#define ROW(address, sum)            \
  "ldr r2, " address                 \
  "\n"                               \
  "sxtb16 r3, r2\n"                  \
  "smlad %[" sum "], r0, r3, %[" sum \
  "]\n"                              \
  "sxtb16 r2, r2, ror #8\n"          \
  "smlad %[" sum "], r1, r2, %[" sum "]\n"
#define TWO_ROWS(w, first, second) ROW("[%[" w "], %[k]]", second) ROW("[%[" w "]], #4", first)
typedef void times_fn(int32_t *sums, const int32_t *start, const uint8_t *x, const uint8_t *w0, size_t k, size_t n);
#define TIMES_NARROW(name, LOAD)                                                                                     \
  static void name##_four(int32_t *sums, const int32_t *start, const uint8_t *x, const uint8_t *w0, size_t k,        \
                          size_t n) {                                                                                \
    const uint8_t *w2 = w0 + 2 * k;                                                                                  \
    int32_t a = start[0], b = start[1], c = start[2], d = start[3];                                                  \
    __asm__ volatile(                                                                                                \
        DSP_LOOP(LOAD TWO_ROWS("w0", "a", "b") TWO_ROWS("w2", "c", "d"))                                             \
        : [a] "+r"(a), [b] "+r"(b), [c] "+r"(c), [d] "+r"(d), [x] "+r"(x), [w0] "+r"(w0), [w2] "+r"(w2), [n] "+r"(n) \
        : [k] "r"(k)                                                                                                 \
        : "r0", "r1", "r2", "r3", "cc", "memory");                                                                   \
    sums[0] = a;                                                                                                     \
    sums[1] = b;                                                                                                     \
    sums[2] = c;                                                                                                     \
    sums[3] = d;                                                                                                     \
  }                                                                                                                  \
  static void name##_two(int32_t *sums, const int32_t *start, const uint8_t *x, const uint8_t *w0, size_t k,         \
                         size_t n) {                                                                                 \
    int32_t a = start[0], b = start[1];                                                                              \
    for (; n > 0; n--) {                                                                                             \
      __asm__ volatile(LOAD TWO_ROWS("w0", "a", "b")                                                                 \
                       : [a] "+r"(a), [b] "+r"(b), [x] "+r"(x), [w0] "+r"(w0)                                        \
                       : [k] "r"(k)                                                                                  \
                       : "r0", "r1", "r2", "r3", "memory");                                                          \
    }                                                                                                                \
    sums[0] = a;                                                                                                     \
    sums[1] = b;                                                                                                     \
  }

TIMES_NARROW(times_8, LOAD_8_8)
TIMES_NARROW(times_16, LOAD_16_8)

/* Two channels in int64. */
#define ROW_8(w, sum)                                \
  "ldr r3, [%[" w                                    \
  "]], #4\n sxtb16 r2, r3\n sxtb16 r3, r3, ror #8\n" \
  "smlald %Q[" sum "], %R[" sum "], r0, r2\n smlald %Q[" sum "], %R[" sum "], r1, r3\n"
#define ROW_16(w, sum)                     \
  "ldr r2, [%[" w "]], #4\n ldr r3, [%[" w \
  "]], #4\n"                               \
  "smlald %Q[" sum "], %R[" sum "], r0, r2\n smlald %Q[" sum "], %R[" sum "], r1, r3\n"
#define TIMES_WIDE(name, LOAD, ROW)                                                                       \
  static void name(int64_t sums[2], const uint8_t *x, const uint8_t *w0, const uint8_t *w1, size_t n) {   \
    int64_t a = sums[0], b = sums[1];                                                                     \
    __asm__ volatile("1:\n" LOAD ROW("w0", "a") ROW("w1", "b") "subs %[n], #1\n"                        \
                                                               "bne 1b\n"                               \
                     : [a] "+r"(a), [b] "+r"(b), [x] "+r"(x), [w0] "+r"(w0), [w1] "+r"(w1), [n] "+r"(n) \
                     :                                                                                  \
                     : "r0", "r1", "r2", "r3", "cc", "memory"); \
    sums[0] = a;                                                                                          \
    sums[1] = b;                                                                                          \
  }

TIMES_WIDE(times_8_8, LOAD_8_8, ROW_8)
TIMES_WIDE(times_8_16, LOAD_8_16, ROW_16)
TIMES_WIDE(times_16_8, LOAD_16_8, ROW_8)
TIMES_WIDE(times_16_16, LOAD_16_16, ROW_16)

/* Rows w0 and w1 of `n` groups of four weights; n is 1 or more. */
static void times_wide(const nmp_conv *c, int64_t sums[2], const uint8_t *x, const uint8_t *w0, const uint8_t *w1,
                       size_t n) {
  if (nmp_x_wide(c)) {
    (nmp_w_wide(c) ? times_16_16 : times_16_8)(sums, x, w0, w1, n);
  } else {
    (nmp_w_wide(c) ? times_8_16 : times_8_8)(sums, x, w0, w1, n);
  }
}

/* The end of a channel, whose products but for a tail of less than four are in sum. */
static void end_single(const nmp_conv *c, const ends *e, size_t i, const uint8_t *patch, int64_t sum, size_t pixel) {
  const size_t whole = c->k / 4 * 4;
  uint8_t *y = output(c, pixel, e->first + i);
  if (nmp_dsp_reads_ahead(c)) {
    uint32_t x[2], w[2];
    expand_four(&x[0], &x[1], patch + (whole << nmp_x_wide(c)), nmp_x_wide(c), nmp_w_wide(c));
    nmp_conv_dsp_tail(c, (const uint8_t *)c->w + ((e->first + i) * c->k << nmp_w_wide(c)), w);
    sum = dsp_mlal2(x[1], w[1], dsp_mlal2(x[0], w[0], sum));
  }
  if (nmp_dsp_is_narrow(c)) {
    end_narrow(c, e, i, (int32_t)sum, 0, 0, 1, y, 0);
  } else {
    end_wide(c, e, i, sum, 0, 1, y, 0);
  }
}

/* The last four elements of a patch, with zeros for those that whole groups of four hold, too. They meet the last four
 * weights of a row, so that nothing behind a row is read.
 */
static void load_last(const nmp_conv *c, const uint8_t *patch, uint32_t last[2]) {
  const size_t bits = (4 - c->k % 4) * 8;
  const uint8_t *four = patch + ((c->k - 4) << nmp_x_wide(c));
  uint64_t elements = dsp_load(four);
  if (nmp_x_wide(c)) {
    elements = (elements | (uint64_t)dsp_load(four + 4) << 32) >> 2 * bits << 2 * bits;
  } else {
    elements = (uint32_t)elements >> bits << bits;
  }
  last[0] = (uint32_t)elements;
  last[1] = (uint32_t)(elements >> 32);
}

/* int8 weights in int32: four channels at a time; three that are left over are the last four again, else two or one,
 * whose sum is computed twice.
 */
static void single_narrow(const nmp_conv *c, const ends *e, const uint8_t *patch, size_t count, size_t pixel) {
  const size_t k = c->k;
  const int wide = nmp_x_wide(c), ahead = nmp_dsp_reads_ahead(c), has_last = k % 4 && !ahead;
  const int to_bytes = e->bytes && !ahead && !nmp_conv_adds(c);
  uint8_t *y = output(c, pixel, e->first);
  uint32_t last[2];
  if (has_last) {
    load_last(c, patch, last);
  }
  for (size_t i = 0, n; i < count; i += n) {
    const size_t rest = count - i;
    const int again = rest == 3 && count > 4 && !nmp_conv_adds(c);
    int32_t sums[4];
    i -= (size_t)again;
    n = rest >= 4 || again ? 4 : rest >= 2 ? 2 : 1;
    const uint8_t *w = (const uint8_t *)c->w + (e->first + i) * k;
    const size_t step = n == 1 ? 0 : k;
    times_fn *const times = n == 4 ? (wide ? times_16_four : times_8_four) : wide ? times_16_two : times_8_two;
    times(sums, e->start + i, patch, w, step, k / 4);
    if (has_last) {
      times(sums, sums, (const uint8_t *)last, w + k - 4, step, 1);
    }
    if (n == 4 && to_bytes) {
      end_bytes(e, e->shift + i, sums[0], sums[1], sums[2], sums[3], y + i);
    } else {
      for (size_t r = 0; r < n; r++) {
        end_single(c, e, i + r, patch, sums[r], pixel);
      }
    }
  }
}

/* Others by two, in int64. */
static void single_wide(const nmp_conv *c, const ends *e, const uint8_t *patch, size_t count, size_t pixel) {
  const size_t row = (size_t)c->k << nmp_w_wide(c);
  for (size_t i = 0, n; i < count; i += n) {
    const uint8_t *w = (const uint8_t *)c->w + (e->first + i) * row;
    n = count - i < 2 ? 1 : 2;
    int64_t sums[2] = {0, 0};
    if (c->k >= 4) {
      times_wide(c, sums, patch, w, w + (n - 1) * row, c->k / 4);
    }
    for (size_t r = 0; r < n; r++) {
      end_single(c, e, i + r, patch, sums[r], pixel);
    }
  }
}

void nmp_conv_dsp_gemv(const nmp_conv *c, const ends *e, const uint8_t *patch, size_t count, size_t pixel) {
  (nmp_dsp_is_narrow(c) ? single_narrow : single_wide)(c, e, patch, count, pixel);
}

#endif
