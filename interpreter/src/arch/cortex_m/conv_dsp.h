/* Parts that the convolutions of Cortex-M's DSP extension share: results, and what weights are multiplied with. */
#ifndef NMP_ARCH_CORTEX_M_CONV_DSP_H
#define NMP_ARCH_CORTEX_M_CONV_DSP_H

#include "arch/cortex_m/conv_dsp_plan.h"
#include "arch/cortex_m/dsp.h"
#include "base/fixed.h"
#include "conv/patch.h"

#ifdef NMP_DSP

/* Ends of the sums of a channel. RANGE8 are int8 ranges but all of int8 and its positive half. The first ones
 * are known to `pairs_of_channels`. */
enum mode { INT8, POSITIVE8, RANGE8 = 4, INT16, POSITIVE16, OTHER };

/* A constant 0 where a build has no such results. */
static inline int is_mode(enum mode mode, enum mode one) {
  const int possible = one <= RANGE8 ? NMP_ACTIVATION_BITS != 16 : NMP_ACTIVATION_BITS != 8;
  return possible && (NMP_CONV_RANGES || one != RANGE8) && mode == one;
}

/* The end of the sums of some channels, prepared once and used for all pixels.
 *
 * narrow: y = (start + products) >> shift, in int32: |start| and |products| are below 2^30.
 * Else:   y = ((products >> (shift - 1)) + 1 >> 1) + bias: |products| <= k * 2^30, so that all after the first shift is
 * int32. shift 0 marks channels for which that is not safe; their sums start at 0 and `nmp_conv_dsp_store` ends them.
 */
typedef struct ends {
#if NMP_CONV_RANGES
  uint32_t lo, hi; /* of c, four times as int8; first for `pairs_of_channels` */
#endif
  uint8_t mode;   /* enum mode */
  uint8_t bytes;  /* all shifts are safe, and results int8 */
  size_t first;   /* channel */
  int32_t *start; /* or bias */
  uint8_t *shift;
} ends;

/* Four sums of neighbouring channels, where e->bytes. */
static inline void end_bytes(const ends *e, const uint8_t *shift, int32_t a, int32_t b, int32_t c, int32_t d,
                             uint8_t *y) {
  a >>= shift[0];
  b >>= shift[1];
  c >>= shift[2];
  d >>= shift[3];
  if (e->mode == POSITIVE8) {
    dsp_store(y, dsp_bytes(dsp_positive8(a), dsp_positive8(b), dsp_positive8(c), dsp_positive8(d)));
    return;
  }
  uint32_t four = dsp_bytes(dsp_int8(a), dsp_int8(b), dsp_int8(c), dsp_int8(d));
#if NMP_CONV_RANGES
  if (e->mode == RANGE8) {
    four = dsp_clip_bytes(four, e->lo, e->hi);
  }
#endif
  dsp_store(y, four);
}

/* room: NMP_DSP_ENDS_BYTES(count) bytes. */
void nmp_conv_dsp_prepare(const nmp_conv *c, size_t first, size_t count, int narrow, void *room, ends *e);

/* The result of a sum that started at 0, to an address in y. Rare, so it is compiled for size. */
__attribute__((cold)) void nmp_conv_dsp_store(const nmp_conv *c, size_t channel, int64_t sum, uint8_t *y);

/* An int8 result and, where c adds, what its place in y holds, clipped to c's range. Rare: most are stored by four. */
__attribute__((cold)) void nmp_conv_dsp_put(const nmp_conv *c, int32_t value, uint8_t *y);

/* An int16 result, clipped to c's range. */
void nmp_conv_dsp_clip(const nmp_conv *c, int32_t value, uint8_t *y);

static inline uint8_t *output(const nmp_conv *c, size_t pixel, size_t channel) {
  return (uint8_t *)c->y + ((pixel * c->out + channel) << nmp_y_wide(c));
}

/* A call with `n` values of one channel, `step` bytes apart: written out, since what has an address is not kept in
 * registers.
 */
#define DSP_EACH(n, CALL, v0, v1, v2, y, step) \
  do {                                         \
    CALL(v0, y);                               \
    if ((n) > 1) {                             \
      CALL(v1, (y) + (step));                  \
    }                                          \
    if ((n) > 2) {                             \
      CALL(v2, (y) + 2 * (step));              \
    }                                          \
  } while (0)

DSP_INLINE void put(const nmp_conv *c, enum mode mode, int32_t v0, int32_t v1, int32_t v2, int n, uint8_t *y,
                    size_t step) {
#define TO_POSITIVE8(v, to) *(int8_t *)(to) = (int8_t)dsp_positive8(v)
#define TO_INT8(v, to) *(int8_t *)(to) = (int8_t)dsp_int8(v)
#define TO_POSITIVE16(v, to) *(int16_t *)(void *)(to) = (int16_t)dsp_positive16(v)
#define TO_INT16(v, to) *(int16_t *)(void *)(to) = (int16_t)dsp_int16(v)
#define TO_OTHER(v, to) nmp_conv_dsp_clip(c, v, to)
#define TO_RANGE(v, to) nmp_conv_dsp_put(c, v, to)
  if (is_mode(mode, POSITIVE16)) {
    DSP_EACH(n, TO_POSITIVE16, v0, v1, v2, y, step);
  } else if (is_mode(mode, INT16)) {
    DSP_EACH(n, TO_INT16, v0, v1, v2, y, step);
  } else if (is_mode(mode, OTHER)) {
    DSP_EACH(n, TO_OTHER, v0, v1, v2, y, step);
  } else if (nmp_conv_adds(c) || is_mode(mode, RANGE8)) {
    DSP_EACH(n, TO_RANGE, v0, v1, v2, y, step);
  } else if (is_mode(mode, POSITIVE8)) {
    DSP_EACH(n, TO_POSITIVE8, v0, v1, v2, y, step);
  } else if (NMP_ACTIVATION_BITS != 16) {
    DSP_EACH(n, TO_INT8, v0, v1, v2, y, step);
  }
#undef TO_POSITIVE8
#undef TO_INT8
#undef TO_POSITIVE16
#undef TO_INT16
#undef TO_OTHER
#undef TO_RANGE
}

DSP_INLINE void end_narrow(const nmp_conv *c, const ends *e, size_t i, int32_t v0, int32_t v1, int32_t v2, int n,
                           uint8_t *y, size_t step) {
  const int shift = e->shift[i];
#define EXACTLY(v, to) nmp_conv_dsp_store(c, e->first + i, v, to)
  if (shift == 0) {
    DSP_EACH(n, EXACTLY, v0, v1, v2, y, step);
  } else {
    put(c, e->mode, v0 >> shift, v1 >> shift, v2 >> shift, n, y, step);
  }
}

/* ((sum >> (shift - 1)) + 1 >> 1) + bias */
static inline int32_t end_one(int64_t sum, int shift, int32_t bias) {
  const uint32_t low = (uint32_t)sum, high = (uint32_t)((uint64_t)sum >> 32);
  const int32_t twice = (int32_t)(shift == 1 ? low : low >> (shift - 1) | high << (33 - shift));
  return ((twice + 1) >> 1) + bias;
}

DSP_INLINE void end_wide(const nmp_conv *c, const ends *e, size_t i, int64_t v0, int64_t v1, int n, uint8_t *y,
                         size_t step) {
  const int shift = e->shift[i];
  const int32_t bias = e->start[i];
  if (shift == 0) {
    DSP_EACH(n, EXACTLY, v0, v1, v0, y, step);
  } else {
    put(c, e->mode, end_one(v0, shift, bias), n > 1 ? end_one(v1, shift, bias) : 0, 0, n, y, step);
  }
}
#undef EXACTLY

nmp_conv_choose_fn nmp_conv_dsp_depthwise, nmp_conv_dsp_taps; /* NULL: none of its own */

/* A weight as an int16, or more of its sign. */
static inline uint32_t dsp_weight(const nmp_conv *c, size_t at) {
  return nmp_w_wide(c) ? ((const uint16_t *)c->w)[at] : (uint32_t)((const int8_t *)c->w)[at];
}

/* `count` channels of e, of three or two pixels from `pixel` on, whose expanded patches are interleaved at x. */
typedef void nmp_conv_dsp_rows(const nmp_conv *c, const ends *e, const uint32_t *x, size_t count, size_t pixel);
nmp_conv_dsp_rows nmp_conv_dsp_three, nmp_conv_dsp_two; /* nmp_dsp_is_narrow */
nmp_conv_dsp_rows nmp_conv_dsp_two_wide;

/* A patch of a single pixel is read up to a multiple of four elements, beyond its end. */
static inline int nmp_dsp_reads_ahead(const nmp_conv *c) {
  return c->k % 4 != 0 && (c->k < 4 || !nmp_dsp_is_narrow(c));
}

/* The channels of e from its first one on, of one pixel from its patch, followed by zeros up to a multiple of four
 * where that is read. Where sums are narrow, nothing else of e is looked at.
 */
void nmp_conv_dsp_gemv(const nmp_conv *c, const ends *e, const uint8_t *patch, size_t count, size_t pixel);

/* The last 1..3 elements of a row of k weights as they meet an expanded patch. Nothing after the row is read. */
void nmp_conv_dsp_tail(const nmp_conv *c, const uint8_t *row, uint32_t pair[2]);

/* Four elements to the two words that meet weights: in SXTB16's order for int8 weights, else as they are. */
static inline void expand_four(uint32_t *first, uint32_t *second, const uint8_t *x, int x_wide, int w_wide) {
  const uint32_t a = dsp_load(x);
  if (x_wide) {
    const uint32_t b = dsp_load(x + 4);
    *first = w_wide ? a : dsp_low(a, b);
    *second = w_wide ? b : dsp_high(a, b);
  } else {
    const uint32_t even = dsp_even(a), odd = dsp_odd(a);
    *first = w_wide ? dsp_low(even, odd) : even;
    *second = w_wide ? dsp_high(even, odd) : odd;
  }
}

/* An inner loop over `n` steps, in rounds of four that the first one enters where as many are left. It takes r0. */
#define DSP_LOOP(STEP) DSP_ROUNDS("%[n]", STEP)
#define DSP_ROUNDS(n, STEP)                                                  \
  "and r0, " n                                                               \
  ", #3\n"                                                                   \
  "adds " n                                                                  \
  ", #3\n"                                                                   \
  "lsrs " n ", " n                                                           \
  ", #2\n"                                                                   \
  "beq 4f\n"                                                                 \
  "tbb [pc, r0]\n"                                                           \
  "0: .byte (1f - 0b) / 2, (13f - 0b) / 2, (12f - 0b) / 2, (11f - 0b) / 2\n" \
  "1:\n" STEP "11:\n" STEP "12:\n" STEP "13:\n" STEP "subs " n               \
  ", #1\n"                                                                   \
  "bne 1b\n"                                                                 \
  "4:\n"

#endif
#endif
