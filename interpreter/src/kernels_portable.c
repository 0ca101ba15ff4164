/* The plain version of every kernel: what the fast ones are compared with. Loops are written so that compilers
 * vectorize them at -O3; instruction sets include this file to have them compiled for themselves, under another name.
 */
#include "conv.h"
#include "fixed.h"
#include "kernels.h"

/* An instruction set's copy has its own name for nmp_kernels_portable, and is reached by that alone. */
#ifdef nmp_kernels_portable
#define KERNEL static
#define NAME(name) name
#else
#define KERNEL
#define NAME(name) nmp_##name
#endif

/* What is computed in place has no dependence from one element to another. */
#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define INDEPENDENT _Pragma("GCC ivdep")
#else
#define INDEPENDENT
#endif

/* Sums of products. SUM holds BLOCK products of the two types exactly: int8 * int8 is at most 2^14 (NMP_K_MAX of them
 * stay below 2^31), int8 * int16 at most 2^22 (256 of them are 2^30), int16 * int16 at most 2^30 (one). Factors are
 * widened to int16 and multiplied in int32, which compilers know as one instruction.
 */
#define GEMM(name, X, W, SUM, BLOCK, ACC)                                                                              \
  static void name##_rows(ACC acc[4], const X *x, size_t stride, const W *w, size_t k, int rows) {                     \
    for (size_t first = 0, n; first < k; first += n) {                                                                 \
      SUM a = 0, b = 0, c = 0, d = 0;                                                                                  \
      n = k - first < (BLOCK) ? k - first : (BLOCK);                                                                   \
      const X *x0 = x + first, *x1 = x0 + stride, *x2 = x1 + stride, *x3 = x2 + stride;                                \
      const W *ws = w + first;                                                                                         \
      if (rows == 4) {                                                                                                 \
        for (size_t i = 0; i < n; i++) {                                                                               \
          const int16_t v = ws[i];                                                                                     \
          a += (int32_t)x0[i] * v;                                                                                     \
          b += (int32_t)x1[i] * v;                                                                                     \
          c += (int32_t)x2[i] * v;                                                                                     \
          d += (int32_t)x3[i] * v;                                                                                     \
        }                                                                                                              \
      } else {                                                                                                         \
        for (size_t i = 0; i < n; i++) {                                                                               \
          a += (int32_t)x0[i] * ws[i];                                                                                 \
        }                                                                                                              \
      }                                                                                                                \
      acc[0] += a;                                                                                                     \
      acc[1] += b;                                                                                                     \
      acc[2] += c;                                                                                                     \
      acc[3] += d;                                                                                                     \
    }                                                                                                                  \
  }                                                                                                                    \
  KERNEL NMP_GEMM(NAME(name)) {                                                                                        \
    ACC *out = sums;                                                                                                   \
    for (size_t row = 0, step; row < rows; row += step) {                                                              \
      step = rows - row >= 4 ? 4 : 1;                                                                                  \
      for (size_t c = 0; c < channels; c++) {                                                                          \
        ACC acc[4] = {0};                                                                                              \
        name##_rows(acc, (const X *)x + row * x_stride, step == 4 ? x_stride : 0, (const W *)w + c * k, k, (int)step); \
        for (size_t r = 0; r < step; r++) {                                                                            \
          out[(row + r) * channels + c] = acc[r];                                                                      \
        }                                                                                                              \
      }                                                                                                                \
    }                                                                                                                  \
  }

GEMM(gemm_8x8, int8_t, int8_t, int32_t, NMP_K_MAX, int32_t)
GEMM(gemm_8x16, int8_t, int16_t, int32_t, 256, int64_t)
GEMM(gemm_16x8, int16_t, int8_t, int32_t, 256, int64_t)
GEMM(gemm_16x16, int16_t, int16_t, int64_t, NMP_K_MAX, int64_t)

/* The same bounds as above. Channels go in tiles whose sums stay in registers. */
#define TILE 16
#define DEPTHWISE(name, X, W, SUM, BLOCK, ACC)                                                           \
  static void name##_tile(ACC *out, const void *const *x, size_t c, const W *w, size_t taps, size_t n) { \
    SUM sum[TILE] = {0};                                                                                 \
    for (size_t t = 0; t < taps; t++) {                                                                  \
      const X *xs = (const X *)x[t] + c;                                                                 \
      const W *ws = w + t * n + c;                                                                       \
      for (int i = 0; i < TILE; i++) {                                                                   \
        sum[i] += (int32_t)xs[i] * ws[i];                                                                \
      }                                                                                                  \
    }                                                                                                    \
    for (int i = 0; i < TILE; i++) {                                                                     \
      out[c + (size_t)i] += sum[i];                                                                      \
    }                                                                                                    \
  }                                                                                                      \
  KERNEL NMP_DEPTHWISE(NAME(name)) {                                                                     \
    ACC *out = sums;                                                                                     \
    for (size_t c = 0; c < n; c++) {                                                                     \
      out[c] = 0;                                                                                        \
    }                                                                                                    \
    for (size_t first = 0, count; first < taps; first += count) {                                        \
      const W *ws = (const W *)w + first * n;                                                            \
      size_t c = 0;                                                                                      \
      count = taps - first < (BLOCK) ? taps - first : (BLOCK);                                           \
      for (; c + TILE <= n; c += TILE) {                                                                 \
        name##_tile(out, x + first, c, ws, count, n);                                                    \
      }                                                                                                  \
      for (; c < n; c++) {                                                                               \
        SUM sum = 0;                                                                                     \
        for (size_t t = 0; t < count; t++) {                                                             \
          sum += (int32_t)((const X *)x[first + t])[c] * ws[t * n + c];                                  \
        }                                                                                                \
        out[c] += sum;                                                                                   \
      }                                                                                                  \
    }                                                                                                    \
  }

DEPTHWISE(depthwise_8x8, int8_t, int8_t, int32_t, NMP_K_MAX, int32_t)
DEPTHWISE(depthwise_8x16, int8_t, int16_t, int32_t, 256, int64_t)
DEPTHWISE(depthwise_16x8, int16_t, int8_t, int32_t, 256, int64_t)
DEPTHWISE(depthwise_16x16, int16_t, int16_t, int64_t, NMP_K_MAX, int64_t)

/* Channel by channel, for its shift and bias are the same in all rows. */
#define SCALE(name, ACC, Y)                                                                \
  KERNEL NMP_SCALE(NAME(name)) {                                                           \
    const ACC *acc = sums;                                                                 \
    Y *out = y;                                                                            \
    for (size_t c = 0; c < channels; c++) {                                                \
      const int s = shift[c];                                                              \
      const int64_t b = bias[c];                                                           \
      for (size_t r = 0; r < rows; r++) {                                                  \
        out[r * y_stride + c] = (Y)nmp_sat(nmp_rsh(acc[r * channels + c], s) + b, lo, hi); \
      }                                                                                    \
    }                                                                                      \
  }

SCALE(scale_32to8, int32_t, int8_t)
SCALE(scale_32to16, int32_t, int16_t)
SCALE(scale_64to8, int64_t, int8_t)
SCALE(scale_64to16, int64_t, int16_t)

#define REQUANTIZE(name, X, Y)                           \
  KERNEL NMP_REQUANTIZE(NAME(name)) {                    \
    const X *xs = x;                                     \
    Y *ys = y;                                           \
    INDEPENDENT for (size_t i = 0; i < n; i++) {         \
      ys[i] = (Y)nmp_sat(nmp_rsh(xs[i], shift), lo, hi); \
    }                                                    \
  }

REQUANTIZE(requantize_8to8, int8_t, int8_t)
REQUANTIZE(requantize_8to16, int8_t, int16_t)
REQUANTIZE(requantize_16to8, int16_t, int8_t)
REQUANTIZE(requantize_16to16, int16_t, int16_t)

/* One operand may be a single value (step 0); the test is outside of the loop. EXPRESSION is of p and q, int64. */
#define BINARY_LOOP(A_STEP, B_STEP, EXPRESSION, Y)            \
  INDEPENDENT for (size_t i = 0; i < n; i++) {                \
    const int64_t p = as[i * (A_STEP)], q = bs[i * (B_STEP)]; \
    ys[i] = (Y)nmp_sat(nmp_rsh((EXPRESSION), shift), lo, hi); \
  }

#define BINARY(SIGNATURE, EXPRESSION, A, B, Y)                                              \
  KERNEL SIGNATURE {                                                                        \
    const A *as = a;                                                                        \
    const B *bs = b;                                                                        \
    Y *ys = y;                                                                              \
    const int64_t a_unit = (int64_t)1 << how->a_shift, b_unit = (int64_t)1 << how->b_shift; \
    const int shift = how->shift;                                                           \
    const int32_t lo = how->lo, hi = how->hi;                                               \
    (void)a_unit;                                                                           \
    (void)b_unit;                                                                           \
    if (how->a_step == 1 && how->b_step == 1) {                                             \
      BINARY_LOOP(1, 1, EXPRESSION, Y)                                                      \
    } else {                                                                                \
      BINARY_LOOP(how->a_step, how->b_step, EXPRESSION, Y)                                  \
    }                                                                                       \
  }

#define ADD(name, A, B, Y) BINARY(NMP_ADD(NAME(name)), p *a_unit + q * b_unit, A, B, Y)
#define SUB(name, A, B, Y) BINARY(NMP_ADD(NAME(name)), p *a_unit - q * b_unit, A, B, Y)
#define MUL(name, A, B, Y) BINARY(NMP_MUL(NAME(name)), p *q, A, B, Y)

#define ALL_WIDTHS(K, name)                    \
  K(name##_8x8to8, int8_t, int8_t, int8_t)     \
  K(name##_8x8to16, int8_t, int8_t, int16_t)   \
  K(name##_8x16to8, int8_t, int16_t, int8_t)   \
  K(name##_8x16to16, int8_t, int16_t, int16_t) \
  K(name##_16x8to8, int16_t, int8_t, int8_t)   \
  K(name##_16x8to16, int16_t, int8_t, int16_t) \
  K(name##_16x16to8, int16_t, int16_t, int8_t) \
  K(name##_16x16to16, int16_t, int16_t, int16_t)

ALL_WIDTHS(ADD, add)
ALL_WIDTHS(SUB, sub)
ALL_WIDTHS(MUL, mul)

#define LOOKUP_8(name, Y)            \
  KERNEL NMP_LOOKUP(NAME(name)) {    \
    const int8_t *xs = x;            \
    const Y *t = table;              \
    Y *ys = y;                       \
    (void)lo;                        \
    (void)hi;                        \
    for (size_t i = 0; i < n; i++) { \
      ys[i] = t[xs[i] + 128];        \
    }                                \
  }

LOOKUP_8(lookup_8to8, int8_t)
LOOKUP_8(lookup_8to16, int16_t)

#define CHORD(name, Y)                                                             \
  KERNEL NMP_CHORD(NAME(name)) {                                                   \
    Y *ys = y;                                                                     \
    for (size_t i = 0; i < n; i++) {                                               \
      const int32_t position = x[i] + 32768, f = position & ((1 << k) - 1);        \
      const int32_t *s = t + (position >> k);                                      \
      const int64_t chord = s[0] * ((int64_t)1 << k) + ((int64_t)s[1] - s[0]) * f; \
      ys[i] = (Y)nmp_sat(nmp_rsh(chord, k + 8), lo, hi);                           \
    }                                                                              \
  }

CHORD(chord_16to8, int8_t)
CHORD(chord_16to16, int16_t)

/* Calls STEP(p) for the channels p[0..n) of every pixel of the window. */
#define FOR_PIXELS(X, STEP)                                       \
  for (size_t r = 0; r < window->rows; r++) {                     \
    const X *p = (const X *)window->x + r * window->row_stride;   \
    for (size_t column = 0; column < window->columns; column++) { \
      for (size_t c = 0; c < n; c++) {                            \
        STEP;                                                     \
      }                                                           \
      p += window->column_stride;                                 \
    }                                                             \
  }

#define MAX(name, X)                                   \
  KERNEL NMP_MAX(NAME(name)) {                         \
    X *restrict ys = y;                                \
    for (size_t c = 0; c < n; c++) {                   \
      ys[c] = ((const X *)window->x)[c];               \
    }                                                  \
    FOR_PIXELS(X, ys[c] = p[c] > ys[c] ? p[c] : ys[c]) \
  }

MAX(max_8, int8_t)
MAX(max_16, int16_t)

#define SUM(name, X)                 \
  KERNEL NMP_SUM(NAME(name)) {       \
    int32_t *restrict ys = sums;     \
    for (size_t c = 0; c < n; c++) { \
      ys[c] = 0;                     \
    }                                \
    FOR_PIXELS(X, ys[c] += p[c])     \
  }

SUM(sum_8, int8_t)
SUM(sum_16, int16_t)

#define WEIGH(name, X)                        \
  KERNEL NMP_WEIGH(NAME(name)) {              \
    const X *restrict xs = x;                 \
    int32_t *restrict ys = y;                 \
    for (size_t c = 0; c < n; c++) {          \
      ys[c] = xs[c] * w[0];                   \
    }                                         \
    for (size_t t = 1; t < taps; t++) {       \
      for (size_t c = 0; c < n; c++) {        \
        ys[c] += xs[t * x_stride + c] * w[t]; \
      }                                       \
    }                                         \
  }

WEIGH(weigh_8, int8_t)
WEIGH(weigh_16, int16_t)

/* A row that is not there has the weight 0. Shifted as unsigned numbers, which all instruction sets can do. */
#define BLEND_LOOP(SUM, Y)                                        \
  for (size_t i = 0; i < n; i++) {                                \
    const uint64_t sum = (uint64_t)(start + (SUM));               \
    ys[i] = (Y)nmp_sat((int64_t)(sum >> shift) - middle, lo, hi); \
  }

#define BLEND(name, Y)                                                                                     \
  KERNEL NMP_BLEND(NAME(name)) {                                                                           \
    const int64_t most = (int64_t)1 << 48, middle = most >> shift;                                         \
    const int64_t start = most + (shift > 0 ? (int64_t)1 << (shift - 1) : 0);                              \
    const int32_t *a = x[0], *b = x[taps > 1 ? 1 : 0], *c = x[taps > 2 ? 2 : 0], *d = x[taps > 3 ? 3 : 0]; \
    const int32_t wa = w[0], wb = taps > 1 ? w[1] : 0, wc = taps > 2 ? w[2] : 0, wd = taps > 3 ? w[3] : 0; \
    Y *restrict ys = y;                                                                                    \
    if (taps <= 2) {                                                                                       \
      BLEND_LOOP((int64_t)a[i] * wa + (int64_t)b[i] * wb, Y)                                               \
    } else {                                                                                               \
      BLEND_LOOP((int64_t)a[i] * wa + (int64_t)b[i] * wb + ((int64_t)c[i] * wc + (int64_t)d[i] * wd), Y)   \
    }                                                                                                      \
  }

BLEND(blend_to8, int8_t)
BLEND(blend_to16, int16_t)

/* Three rows are the planes of a picture, which compilers interleave with vectors when they know the number. */
#define TRANSPOSE(name, X)                                                  \
  KERNEL NMP_TRANSPOSE(NAME(name)) {                                        \
    const X *restrict xs = x;                                               \
    X *restrict ys = y;                                                     \
    for (size_t i = 0; i < n && rows == 3; i++) {                           \
      for (size_t r = 0; r < 3; r++) {                                      \
        ys[i * 3 + r] = xs[r * x_stride + i];                               \
      }                                                                     \
    }                                                                       \
    for (size_t first = 0, last; first < rows && rows != 3; first = last) { \
      last = rows - first < TILE ? rows : first + TILE;                     \
      for (size_t i = 0; i < n; i++) {                                      \
        for (size_t r = first; r < last; r++) {                             \
          ys[i * rows + r] = xs[r * x_stride + i];                          \
        }                                                                   \
      }                                                                     \
    }                                                                       \
  }

TRANSPOSE(transpose_8, int8_t)
TRANSPOSE(transpose_16, int16_t)

void nmp_kernels_portable(nmp_kernels *kernels) {
#ifdef nmp_kernels_portable
  static const nmp_kernels portable = {NMP_PORTABLE_KERNELS()};
#else
  static const nmp_kernels portable = {NMP_PORTABLE_KERNELS(nmp_)};
#endif
  *kernels = portable;
}
