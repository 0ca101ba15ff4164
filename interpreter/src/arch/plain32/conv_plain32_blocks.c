/* 1. int8 x int8: a word holds the factors of two pixels, first - second * 2^16, so that one multiplication makes two
 *    products. A group of products is added up while the first pixel's stay in 16 bits. Two always do, as they are
 *    -32512 to 32768 and 32767 is added to them; the second's are -32768 to 32512, since its factors are negated. The
 *    high half is added to the second pixel's sum, all of it to a word that has the first one's in the end, when the
 *    second's is taken off.
 * 2. One factor int16 or both: a sum's low word holds a group of products, and keeps 16 bits of it; the rest is added
 * to the high word. Sums are negated: -2^31 + 65535 to 2^31 - 1 is what two products of int16 can make of the low word.
 */
#include "arch/plain32/conv_plain32.h"
#include "base/fixed.h"

#ifdef NMP_PLAIN32

#define INLINE static inline __attribute__((always_inline))

/* Between steps the loads stay in order: all at once they would not fit the registers. */
#define IN_ORDER __asm__ volatile("" ::: "memory");

/* Sums of a channel, for four pixels. int8 x int8: low holds the sums. Else they are -(high * 2^16 + low). */
typedef struct sums {
  int32_t low[4], high[4];
} sums;

#define OFFSET 32767u

#define FIRST(both, second) (int32_t)(both - ((uint32_t)second << 16))

#ifdef __arm__
/* Sums lie in the high registers of a Cortex-M0, which can be added to and do little else. */
#if defined(__ARM_ARCH_ISA_THUMB) && __ARM_ARCH_ISA_THUMB == 1
#define ADD_TO(sum, value) __asm__("add %0, %1" : "+h"(sum) : "l"(value))
#else
#define ADD_TO(sum, value) sum += value
#endif

/* One channel after the other: thirteen registers hold its sums of four pixels, not those of two channels. A group
 * starts at what is added to it, which the sums of both pixels have in the end as often as there are groups.
 */
#define STEP_8X8(i, SET)                                                   \
  {                                                                        \
    const uint32_t u = (uint32_t)w[i], p = x[2 * (i)], q = x[2 * (i) + 1]; \
    a SET p *u, b SET q *u;                                                \
  }
#define PUT_BOTH(t, both, second) \
  ADD_TO(both, t);                \
  ADD_TO(second, (int32_t)t >> 16);
#define START_8X8 a = b = OFFSET;
#define END_8X8 PUT_BOTH(a, a_both, a_second) PUT_BOTH(b, b_both, b_second)

/* Rounds of four products in so many groups. */
#define BLOCK_8X8(name, GROUPS, STEPS)                                                                       \
  static __attribute__((noinline)) void name##_one(sums *to, const uint32_t *x, const int8_t *w, size_t k) { \
    const int8_t *const end = w + k / 4 * 4;                                                                 \
    uint32_t a, b, a_both = 0 - (k / 4 * (GROUPS) + k / 2 % 2 + k % 2) * OFFSET, b_both = a_both;            \
    int32_t a_second = 0, b_second = 0;                                                                      \
    for (; w < end; x += 8, w += 4) {                                                                        \
      START_8X8 STEPS END_8X8                                                                                \
    }                                                                                                        \
    if (k & 2) {                                                                                             \
      START_8X8 STEP_8X8(0, +=) STEP_8X8(1, +=) END_8X8 x += 4, w += 2;                                      \
    }                                                                                                        \
    if (k & 1) {                                                                                             \
      START_8X8 STEP_8X8(0, +=) END_8X8                                                                      \
    }                                                                                                        \
    to->low[0] = FIRST(a_both, a_second);                                                                    \
    to->low[1] = -a_second;                                                                                  \
    to->low[2] = FIRST(b_both, b_second);                                                                    \
    to->low[3] = -b_second;                                                                                  \
  }                                                                                                          \
  INLINE void name(sums to[2], const uint32_t *x, const int8_t *w0, const int8_t *w1, size_t k) {            \
    name##_one(&to[0], x, w0, k);                                                                            \
    if (w1 != w0) {                                                                                          \
      name##_one(&to[1], x, w1, k);                                                                          \
    }                                                                                                        \
  }

BLOCK_8X8(block_8x8_pairs, 2, STEP_8X8(0, +=) STEP_8X8(1, +=) END_8X8 START_8X8 STEP_8X8(2, +=) STEP_8X8(3, +=))
BLOCK_8X8(block_8x8_fours, 1,
          STEP_8X8(0, +=) IN_ORDER STEP_8X8(1, +=) IN_ORDER STEP_8X8(2, +=) IN_ORDER STEP_8X8(3, +=))
#else
/* Adds a group's products to the sums of two pixels and a channel. */
#define PUT_PAIR(t, both, second) both += t, second += (int32_t)(t + OFFSET) >> 16;

#define STEP_8X8(i, SET)                                                                         \
  {                                                                                              \
    const uint32_t u = (uint32_t)w0[i], v = (uint32_t)w1[i], p = x[2 * (i)], q = x[2 * (i) + 1]; \
    a SET p *u, b SET q *u, c SET p *v, d SET q *v;                                              \
  }
#define END_8X8                 \
  PUT_PAIR(a, a_both, a_second) \
  PUT_PAIR(b, b_both, b_second) PUT_PAIR(c, c_both, c_second) PUT_PAIR(d, d_both, d_second)

/* Sums of two channels. `grouped` of the k products are added up in groups, what is left one by one. */
#define BLOCK_8X8(name, GROUP, STEPS)                                                              \
  INLINE void name(sums to[2], const uint32_t *x, const int8_t *w0, const int8_t *w1, size_t k) {  \
    const int8_t *const last = w0 + k, *end = last - k % (GROUP);                                  \
    uint32_t a, b, c, d, a_both = 0, b_both = 0, c_both = 0, d_both = 0;                           \
    int32_t a_second = 0, b_second = 0, c_second = 0, d_second = 0;                                \
    for (; w0 < end; x += 2 * (GROUP), w0 += (GROUP), w1 += (GROUP)) {                             \
      STEPS END_8X8                                                                                \
    }                                                                                              \
    for (; w0 < last; x += 2, w0++, w1++) {                                                        \
      STEP_8X8(0, =) END_8X8                                                                       \
    }                                                                                              \
    to[0] = (sums){{FIRST(a_both, a_second), -a_second, FIRST(b_both, b_second), -b_second}, {0}}; \
    to[1] = (sums){{FIRST(c_both, c_second), -c_second, FIRST(d_both, d_second), -d_second}, {0}}; \
  }

BLOCK_8X8(block_8x8_pairs, 2, STEP_8X8(0, =) STEP_8X8(1, +=))
BLOCK_8X8(block_8x8_fours, 4, STEP_8X8(0, =) IN_ORDER STEP_8X8(1, +=) IN_ORDER STEP_8X8(2, +=) IN_ORDER STEP_8X8(3, +=))
#endif

#define STEP_WIDE(i)                                                        \
  {                                                                         \
    const int32_t u = w0[i], v = w1[i], p = x[4 * (i)], q = x[4 * (i) + 1]; \
    a -= p * u, e -= p * v, b -= q * u, f -= q * v;                         \
    const int32_t r = x[4 * (i) + 2], s = x[4 * (i) + 3];                   \
    c -= r * u, g -= r * v, d -= s * u, h -= s * v;                         \
  }
#define PUT(low, high) high += low >> 16, low &= 0xFFFF;
#define END_WIDE \
  PUT(a, a_high) \
  PUT(b, b_high) PUT(c, c_high) PUT(d, d_high) PUT(e, e_high) PUT(f, f_high) PUT(g, g_high) PUT(h, h_high)

/* ROUNDS times the ROUND products of STEPS make a group. */
#define BLOCK_WIDE(name, X, W, STEPS, ROUND, ROUNDS)                                                        \
  INLINE void name(sums to[2], const X *x, const W *w0, const W *w1, size_t k) {                            \
    const W *const last = w0 + k, *end = last - k % (ROUND);                                                \
    int32_t a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0;                                         \
    int32_t a_high = 0, b_high = 0, c_high = 0, d_high = 0, e_high = 0, f_high = 0, g_high = 0, h_high = 0; \
    while (w0 < end) {                                                                                      \
      const W *stop = (ROUNDS) > 1 && end - w0 > (ROUND) * (ROUNDS) ? w0 + (ROUND) * (ROUNDS) : end;        \
      do {                                                                                                  \
        STEPS x += 4 * (ROUND), w0 += (ROUND), w1 += (ROUND);                                               \
      } while ((ROUNDS) > 1 && w0 < stop);                                                                  \
      END_WIDE                                                                                              \
    }                                                                                                       \
    for (; w0 < last; x += 4, w0++, w1++) {                                                                 \
      STEP_WIDE(0) END_WIDE                                                                                 \
    }                                                                                                       \
    to[0] = (sums){{a, b, c, d}, {a_high, b_high, c_high, d_high}};                                         \
    to[1] = (sums){{e, f, g, h}, {e_high, f_high, g_high, h_high}};                                         \
  }

#define FOUR_STEPS STEP_WIDE(0) IN_ORDER STEP_WIDE(1) IN_ORDER STEP_WIDE(2) IN_ORDER STEP_WIDE(3)
BLOCK_WIDE(block_16x16_pairs, int16_t, int16_t, STEP_WIDE(0) IN_ORDER STEP_WIDE(1), 2, 1)
BLOCK_WIDE(block_16x16_fours, int16_t, int16_t, FOUR_STEPS, 4, 1)
BLOCK_WIDE(block_16x8, int16_t, int8_t, FOUR_STEPS, 4, 64)
BLOCK_WIDE(block_8x16, int8_t, int16_t, FOUR_STEPS, 4, 64)

/* y = the values of up to four pixels, with what y holds where that is added, clipped. */
#define CLIP(v) ((v) < lo ? lo : (v) > hi ? hi : (v))
#define STORE(Y, HELD, VALUE)                \
  {                                          \
    Y *to = (Y *)(void *)y;                  \
    const int32_t first = VALUE(0, HELD);    \
    *to = (Y)CLIP(first);                    \
    if (pixels > 1) {                        \
      to += step;                            \
      const int32_t second = VALUE(1, HELD); \
      *to = (Y)CLIP(second);                 \
    }                                        \
    if (pixels > 2) {                        \
      to += step;                            \
      const int32_t third = VALUE(2, HELD);  \
      *to = (Y)CLIP(third);                  \
    }                                        \
    if (pixels > 3) {                        \
      to += step;                            \
      const int32_t fourth = VALUE(3, HELD); \
      *to = (Y)CLIP(fourth);                 \
    }                                        \
  }
#define STORE_EITHER(VALUE)      \
  if (nmp_y_wide(c)) {           \
    STORE(int16_t, 0, VALUE)     \
  } else if (nmp_conv_adds(c)) { \
    STORE(int8_t, *to, VALUE)    \
  } else {                       \
    STORE(int8_t, 0, VALUE)      \
  }

/* Any shift and bias. */
static __attribute__((noinline)) void end_exactly(const nmp_conv *c, sums s, int wide, size_t channel, size_t pixels,
                                                  uint8_t *y) {
  const int shift = nmp_conv_shift(c, channel);
  const int32_t bias = nmp_conv_bias(c, channel), lo = c->lo, hi = c->hi;
  const size_t step = c->out;
#define SUM(i) (wide ? -((int64_t)s.high[i] * 65536 + s.low[i]) : s.low[i])
#define EXACTLY(i, held) nmp_sat(nmp_rsh(SUM(i), shift) + bias + (held), lo, hi)
  STORE_EITHER(EXACTLY)
}

INLINE void end(const nmp_conv *c, const sums *s, int wide, size_t channel, size_t pixels, uint8_t *y) {
  const int shift = nmp_conv_shift(c, channel);
  const int32_t bias = nmp_conv_bias(c, channel), lo = c->lo, hi = c->hi;
  const size_t step = c->out;
  if (!(wide ? nmp_conv_plain32_fits_16(shift, bias, c->k) : nmp_conv_plain32_fits_8(shift, bias))) {
    end_exactly(c, *s, wide, channel, pixels, y);
  } else if (wide) {
    const nmp_end_plain32 e = nmp_conv_plain32_end(shift, bias);
#define WIDE(i, held) nmp_conv_plain32_end_16(e, s->low[i], s->high[i]) + (held)
    STORE_EITHER(WIDE)
  } else {
    const int32_t start = bias * (1 << shift) + (1 << (shift - 1));
#define NARROW(i, held) ((s->low[i] + start) >> shift) + (held)
    STORE_EITHER(NARROW)
  }
}

#define CHANNELS(name, X, W, WIDE_SUMS, GROUPED, PAIRS, FOURS)                                            \
  void name(const nmp_conv *c, const void *patches, const uint8_t *by_fours, size_t pixel, size_t pixels, \
            size_t first, size_t last) {                                                                  \
    const W *w = (const W *)c->w + first * c->k;                                                          \
    uint8_t *y = (uint8_t *)c->y + ((pixel * c->out + first) << nmp_y_wide(c));                           \
    for (size_t channel = first; channel < last; channel += 2, w += 2 * c->k, y += 2 << nmp_y_wide(c)) {  \
      const size_t two = channel + 1 < last;                                                              \
      const W *second = two ? w + c->k : w;                                                               \
      sums s[2];                                                                                          \
      if ((GROUPED) && by_fours && *by_fours++) {                                                         \
        FOURS(s, (const X *)patches, w, second, c->k);                                                    \
      } else {                                                                                            \
        PAIRS(s, (const X *)patches, w, second, c->k);                                                    \
      }                                                                                                   \
      for (size_t i = 0; i <= two; i++) {                                                                 \
        end(c, &s[i], WIDE_SUMS, channel + i, pixels, y + (i << nmp_y_wide(c)));                          \
      }                                                                                                   \
    }                                                                                                     \
  }

CHANNELS(nmp_conv_plain32_8x8, uint32_t, int8_t, 0, 1, block_8x8_pairs, block_8x8_fours)
CHANNELS(nmp_conv_plain32_16x16, int16_t, int16_t, 1, 1, block_16x16_pairs, block_16x16_fours)
CHANNELS(nmp_conv_plain32_16x8, int16_t, int8_t, 1, 0, block_16x8, block_16x8)
CHANNELS(nmp_conv_plain32_8x16, int8_t, int16_t, 1, 0, block_8x16, block_8x16)

#endif
