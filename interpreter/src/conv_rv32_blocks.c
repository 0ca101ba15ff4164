/* 1. int8 x int8: a word holds the factors of two pixels, first - second * 2^16, so that one multiplication makes two
 *    products. A group of products is added up while the first pixel's stay in 16 bits. Two always do, as they are
 *    -32512 to 32768 and 32767 is added to them; the second's are -32768 to 32512, since its factors are negated. The
 *    high half is added to the second pixel's sum, all of it to a word that has the first one's in the end, when the
 *    second's is taken off.
 * 2. One factor int16 or both: a sum's low word holds a group of products, and keeps 16 bits of it; the rest is added
 * to the high word. Sums are negated: -2^31 + 65535 to 2^31 - 1 is what two products of int16 can make of the low word.
 */
#include "conv_rv32.h"

#ifdef NMP_RV32

/* Between steps the loads stay in order: all at once they would not fit the registers. */
#define IN_ORDER __asm__ volatile("" ::: "memory");

#define OFFSET 32767u

/* What a group adds to the sums of two pixels and a channel. */
#define PUT_PAIR(t, both, second) both += t, second += (int32_t)(t + OFFSET) >> 16;

#define STEP_8X8(i, SET)                                                                         \
  {                                                                                              \
    const uint32_t u = (uint32_t)w0[i], v = (uint32_t)w1[i], p = x[2 * (i)], q = x[2 * (i) + 1]; \
    a SET p *u, b SET q *u, c SET p *v, d SET q *v;                                              \
  }
#define END_8X8                 \
  PUT_PAIR(a, a_both, a_second) \
  PUT_PAIR(b, b_both, b_second) PUT_PAIR(c, c_both, c_second) PUT_PAIR(d, d_both, d_second)

#define BLOCK_8X8(name, GROUP, STEPS)                                                                               \
  void name(nmp_sums_rv32 *sums, const void *xs, const void *first, const void *second, size_t k, size_t grouped) { \
    const uint32_t *x = xs;                                                                                         \
    const int8_t *w0 = first, *w1 = second, *end = w0 + grouped;                                                    \
    uint32_t a, b, c, d, a_both = 0, b_both = 0, c_both = 0, d_both = 0;                                            \
    int32_t a_second = 0, b_second = 0, c_second = 0, d_second = 0;                                                 \
    for (; w0 < end; x += 2 * (GROUP), w0 += (GROUP), w1 += (GROUP)) {                                              \
      STEPS END_8X8                                                                                                 \
    }                                                                                                               \
    for (end += k - grouped; w0 < end; x += 2, w0++, w1++) {                                                        \
      STEP_8X8(0, =) END_8X8                                                                                        \
    }                                                                                                               \
    sums[0].low[0] = (int32_t)(a_both - ((uint32_t)a_second << 16));                                                \
    sums[0].low[1] = -a_second;                                                                                     \
    sums[0].low[2] = (int32_t)(b_both - ((uint32_t)b_second << 16));                                                \
    sums[0].low[3] = -b_second;                                                                                     \
    sums[1].low[0] = (int32_t)(c_both - ((uint32_t)c_second << 16));                                                \
    sums[1].low[1] = -c_second;                                                                                     \
    sums[1].low[2] = (int32_t)(d_both - ((uint32_t)d_second << 16));                                                \
    sums[1].low[3] = -d_second;                                                                                     \
  }

BLOCK_8X8(nmp_block_8x8_pairs, 2, STEP_8X8(0, =) STEP_8X8(1, +=))
BLOCK_8X8(nmp_block_8x8_fours, 4,
          STEP_8X8(0, =) IN_ORDER STEP_8X8(1, +=) IN_ORDER STEP_8X8(2, +=) IN_ORDER STEP_8X8(3, +=))

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

/* ROUNDS times the products of STEPS make a group. */
#define BLOCK_WIDE(name, X, W, STEPS, ROUND, ROUNDS)                                                                \
  void name(nmp_sums_rv32 *sums, const void *xs, const void *first, const void *second, size_t k, size_t grouped) { \
    const X *x = xs;                                                                                                \
    const W *w0 = first, *w1 = second, *end = w0 + grouped;                                                         \
    int32_t a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0;                                                 \
    int32_t a_high = 0, b_high = 0, c_high = 0, d_high = 0, e_high = 0, f_high = 0, g_high = 0, h_high = 0;         \
    while (w0 < end) {                                                                                              \
      const W *stop = (ROUNDS) > 1 && end - w0 > (ROUND) * (ROUNDS) ? w0 + (ROUND) * (ROUNDS) : end;                \
      do {                                                                                                          \
        STEPS x += 4 * (ROUND), w0 += (ROUND), w1 += (ROUND);                                                       \
      } while ((ROUNDS) > 1 && w0 < stop);                                                                          \
      END_WIDE                                                                                                      \
    }                                                                                                               \
    for (end += k - grouped; w0 < end; x += 4, w0++, w1++) {                                                        \
      STEP_WIDE(0) END_WIDE                                                                                         \
    }                                                                                                               \
    sums[0] = (nmp_sums_rv32){{a, b, c, d}, {a_high, b_high, c_high, d_high}};                                      \
    sums[1] = (nmp_sums_rv32){{e, f, g, h}, {e_high, f_high, g_high, h_high}};                                      \
  }

#define FOUR_STEPS STEP_WIDE(0) IN_ORDER STEP_WIDE(1) IN_ORDER STEP_WIDE(2) IN_ORDER STEP_WIDE(3)
BLOCK_WIDE(nmp_block_16x16_pairs, int16_t, int16_t, STEP_WIDE(0) IN_ORDER STEP_WIDE(1), 2, 1)
BLOCK_WIDE(nmp_block_16x16_fours, int16_t, int16_t, FOUR_STEPS, 4, 1)
BLOCK_WIDE(nmp_block_16x8, int16_t, int8_t, FOUR_STEPS, 4, 64)
BLOCK_WIDE(nmp_block_8x16, int8_t, int16_t, FOUR_STEPS, 4, 64)

#endif
