/* Rows of products with a factor of int16, and their ends, on a plain 32-bit CPU. */
#include "arch/plain32/level.h"
#include "base/fixed.h"

#ifdef NMP_PLAIN32

/* The low words of negated sums hold a group of products (conv_plain32_blocks.c): two of int16 always fit, or 256 of
 * int16 and int8.
 */
#define STEP(i)                                                     \
  {                                                                 \
    const int32_t p = x[i];                                         \
    a -= p * w0[i], b -= p * w1[i], c -= p * w2[i], d -= p * w3[i]; \
  }
/* Between steps the loads stay in order: all at once they would not fit the registers. */
#define IN_ORDER __asm__ volatile("" ::: "memory");
#define PUT(low, high) high += low >> 16, low &= 0xFFFF;
#define SUM(low, high) -((int64_t)(high) * 65536 + (low))

/* ROUNDS times four products make a group; END comes after two. Channels that are not there are the last one again. */
#define PUT_ALL PUT(a, a_high) PUT(b, b_high) PUT(c, c_high) PUT(d, d_high)
#define GEMM(name, X, W, ROUNDS, END)                                                                              \
  static __attribute__((noinline)) void name##_four(int64_t sums[4], const X *x, const W *w, const size_t rows[3], \
                                                    size_t k) {                                                    \
    const W *w0 = w, *w1 = w + rows[0], *w2 = w + rows[1], *w3 = w + rows[2];                                      \
    const X *end = x + k / 4 * 4;                                                                                  \
    int32_t a = 0, b = 0, c = 0, d = 0, a_high = 0, b_high = 0, c_high = 0, d_high = 0;                            \
    while (x < end) {                                                                                              \
      const X *stop = (ROUNDS) > 1 && end - x > 4 * (ROUNDS) ? x + 4 * (ROUNDS) : end;                             \
      do {                                                                                                         \
        STEP(0) IN_ORDER STEP(1) END IN_ORDER STEP(2) IN_ORDER STEP(3) x += 4, w0 += 4, w1 += 4, w2 += 4, w3 += 4; \
      } while ((ROUNDS) > 1 && x < stop);                                                                          \
      PUT_ALL                                                                                                      \
    }                                                                                                              \
    for (end += k % 4; x < end; x++, w0++, w1++, w2++, w3++) {                                                     \
      STEP(0) PUT_ALL                                                                                              \
    }                                                                                                              \
    sums[0] = SUM(a, a_high), sums[1] = SUM(b, b_high), sums[2] = SUM(c, c_high), sums[3] = SUM(d, d_high);        \
  }                                                                                                                \
  NMP_GEMM(nmp_plain32_##name) {                                                                                   \
    int64_t *out = sums, four[4];                                                                                  \
    for (size_t r = 0; r < rows; r++, out += channels) {                                                           \
      const X *xs = (const X *)x + r * x_stride;                                                                   \
      for (size_t c = 0; c < channels; c += 4) {                                                                   \
        const size_t left = channels - c - 1;                                                                      \
        const size_t next[3] = {left > 0 ? k : 0, left > 1 ? 2 * k : 0, left > 2 ? 3 * k : 0};                     \
        name##_four(four, xs, (const W *)w + c * k, next, k);                                                      \
        for (size_t i = 0; i < 4 && c + i < channels; i++) {                                                       \
          out[c + i] = four[i];                                                                                    \
        }                                                                                                          \
      }                                                                                                            \
    }                                                                                                              \
  }

GEMM(gemm_8x16, int8_t, int16_t, 64, )
GEMM(gemm_16x8, int16_t, int8_t, 64, )
GEMM(gemm_16x16, int16_t, int16_t, 1, PUT_ALL)

/* From a shift of 18 on, the lowest 17 bits of a sum only round down, and the others are an int32. */
#define SCALE(name, Y)                                                                   \
  NMP_SCALE(nmp_plain32_##name) {                                                        \
    for (size_t c = 0; c < channels; c++) {                                              \
      const int64_t *acc = (const int64_t *)sums + c;                                    \
      const int32_t b = bias[c];                                                         \
      const int s = shift[c];                                                            \
      const int high = s >= 18 && s < 47 && b > -(1 << 29) && b < 1 << 29;               \
      Y *out = (Y *)y + c;                                                               \
      for (size_t r = 0; r < rows; r++, acc += channels, out += y_stride) {              \
        if (high) {                                                                      \
          const int32_t v = (((int32_t)(*acc >> 17) + (1 << (s - 18))) >> (s - 17)) + b; \
          *out = (Y)(v < lo ? lo : v > hi ? hi : v);                                     \
        } else {                                                                         \
          *out = (Y)nmp_sat(nmp_rsh(*acc, s) + b, lo, hi);                               \
        }                                                                                \
      }                                                                                  \
    }                                                                                    \
  }

SCALE(scale_64to8, int8_t)
SCALE(scale_64to16, int16_t)

#endif
