/* The kernels that a plain 32-bit CPU does better in another shape: blocks of sums that stay in its registers, loops
 * that are unrolled as addresses have immediate offsets, and results in 32 bits.
 */
#include "arch/plain32/level.h"
#include "base/fixed.h"
#include "base/isa.h"

#ifdef NMP_PLAIN32

/* Four steps in a round, so that loads have immediate offsets from pointers that move once. Between steps the loads
 * stay in order: all at once they would not fit the registers. A call keeps the registers of outer loops out.
 */
#define IN_ORDER __asm__ volatile("" ::: "memory");
#define CALLED static __attribute__((noinline))
#define ROUNDS(k, STEP, MOVE)                                                   \
  for (size_t left = k; left >= 4; left -= 4) {                                 \
    STEP(0) IN_ORDER STEP(1) IN_ORDER STEP(2) IN_ORDER STEP(3) IN_ORDER MOVE(4) \
  }                                                                             \
  for (size_t left = k % 4; left > 0; left--) {                                 \
    STEP(0) MOVE(1)                                                             \
  }

/* Sums of four rows and two channels. */
CALLED void four_by_two(int32_t *sums, size_t channels, const int8_t *x, size_t stride, const int8_t *w, size_t k) {
  const int8_t *x0 = x, *x1 = x0 + stride, *x2 = x1 + stride, *x3 = x2 + stride, *w0 = w, *w1 = w + k;
  int32_t a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0;
#define STEP(i)                                                                                     \
  {                                                                                                 \
    const int32_t u = w0[i], v = w1[i], p = x0[i], q = x1[i], r = x2[i], s = x3[i];                 \
    a += p * u, b += p * v, c += q * u, d += q * v, e += r * u, f += r * v, g += s * u, h += s * v; \
  }
#define MOVE(n) x0 += n, x1 += n, x2 += n, x3 += n, w0 += n, w1 += n;
  ROUNDS(k, STEP, MOVE)
#undef STEP
#undef MOVE
  sums[0] = a;
  sums[1] = b;
  sums += channels;
  sums[0] = c;
  sums[1] = d;
  sums += channels;
  sums[0] = e;
  sums[1] = f;
  sums += channels;
  sums[0] = g;
  sums[1] = h;
}

#if defined(__ARM_ARCH_ISA_THUMB) && __ARM_ARCH_ISA_THUMB == 1
/* Sums of one row and two channels: a Cortex-M0 has eight registers for them. Its loads of int8 have no immediate
 * offset, so all three addresses move by one register, which NMP_KEEP keeps one.
 */
CALLED void one_by_two(int32_t *sums, const int8_t *x, const int8_t *w0, const int8_t *w1, size_t k) {
  const int8_t *x_end = x + k, *end0 = w0 + k, *end1 = w1 + k;
  ptrdiff_t i = -(ptrdiff_t)k;
  int32_t a = 0, b = 0;
#define STEP                            \
  {                                     \
    const int32_t p = x_end[i];         \
    a += p * end0[i], b += p * end1[i]; \
    i++;                                \
    NMP_KEEP("+l", i);                  \
  }
  while (i <= -4) {
    STEP STEP STEP STEP
  }
  while (i < 0) {
    STEP
  }
#undef STEP
  sums[0] = a;
  sums[1] = b;
}

static void one_by_four(int32_t *sums, const int8_t *x, const int8_t *w, size_t k) {
  one_by_two(sums, x, w, w + k, k);
  one_by_two(sums + 2, x, w + 2 * k, w + 3 * k, k);
}
#else
#ifdef __thumb2__
/* Sums of one row and N channels, four or three. Loads move their addresses, which compilers do not make of unrolled
 * loops. */
#define ROW(address, sum)   \
  "ldrsb %[v], [%[" address \
  "]], #1\n"                \
  "mla %[" sum "], %[u], %[v], %[" sum "]\n"
#define THREE_ROWS ROW("w0", "a") ROW("w1", "b") ROW("w2", "c")
#define LOADED(ROWS)                                                                                         \
  {                                                                                                          \
    int32_t u, v;                                                                                            \
    __asm__ volatile("ldrsb %[u], [%[x]], #1\n" ROWS                                                         \
                     : [x] "+r"(x), [w0] "+r"(w0), [w1] "+r"(w1), [w2] "+r"(w2), [w3] "+r"(w3), [a] "+r"(a), \
                       [b] "+r"(b), [c] "+r"(c), [d] "+r"(d), [u] "=&r"(u), [v] "=&r"(v)                     \
                     :                                                                                       \
                     : "memory");                                                                            \
  }
#define FOUR_STEP(i) LOADED(THREE_ROWS ROW("w3", "d"))
#define THREE_STEP(i) LOADED(THREE_ROWS)
#define MOVE(n)
#else
/* Sums of one row and N channels, four or three. */
#define THREE_STEP(i)        \
  const int32_t p##i = x[i]; \
  a += p##i * w0[i], b += p##i * w1[i], c += p##i * w2[i];
#define FOUR_STEP(i) THREE_STEP(i) d += p##i * w3[i];
#define MOVE(n) x += n, w0 += n, w1 += n, w2 += n, w3 += n;
#endif
#define ONE_BY(name, N, STEP)                                                       \
  CALLED void name(int32_t *sums, const int8_t *x, const int8_t *w, size_t k) {     \
    const int8_t *w0 = w, *w1 = w0 + k, *w2 = w1 + k, *w3 = w2 + ((N) > 3 ? k : 0); \
    int32_t a = 0, b = 0, c = 0, d = 0;                                             \
    ROUNDS(k, STEP, MOVE)                                                           \
    sums[0] = a;                                                                    \
    sums[1] = b;                                                                    \
    sums[2] = c;                                                                    \
    if ((N) > 3) {                                                                  \
      sums[3] = d;                                                                  \
    }                                                                               \
  }
ONE_BY(one_by_four, 4, FOUR_STEP)
ONE_BY(one_by_three, 3, THREE_STEP)
#undef MOVE
#endif

static int32_t one_by_one(const int8_t *x, const int8_t *w, size_t k) {
  int32_t a = 0;
#define STEP(i) a += x[i] * w[i];
#define MOVE(n) x += n, w += n;
  ROUNDS(k, STEP, MOVE)
#undef STEP
#undef MOVE
  return a;
}

void nmp_plain32_row_8x8(int32_t *sums, const int8_t *x, const int8_t *w, size_t k, size_t channels) {
  for (; channels >= 4; channels -= 4, sums += 4, w += 4 * k) {
    one_by_four(sums, x, w, k);
  }
#if defined(__ARM_ARCH_ISA_THUMB) && __ARM_ARCH_ISA_THUMB == 1
  if (channels >= 2) {
    one_by_two(sums, x, w, w + k, k);
    sums += 2, w += 2 * k, channels -= 2;
  }
#else
  if (channels == 3) {
    one_by_three(sums, x, w, k);
    return;
  }
#endif
  for (; channels > 0; channels--, w += k) {
    *sums++ = one_by_one(x, w, k);
  }
}

NMP_GEMM(nmp_plain32_gemm_8x8) {
  const int8_t *xs = x, *ws = w;
  int32_t *out = sums;
  for (; rows >= 4; rows -= 4, xs += 4 * x_stride, out += 4 * channels) {
    size_t c = 0;
    for (; c + 2 <= channels; c += 2) {
      four_by_two(out + c, channels, xs, x_stride, ws + c * k, k);
    }
    for (size_t r = 0; r < 4 && c < channels; r++) {
      out[r * channels + c] = one_by_one(xs + r * x_stride, ws + c * k, k);
    }
  }
  for (; rows > 0; rows--, xs += x_stride, out += channels) {
    nmp_plain32_row_8x8(out, xs, ws, k, channels);
  }
}

/* Eight channels at a time. */
CALLED void eight_channels(int32_t *sums, const void *const *x, size_t c, const int8_t *w, size_t taps, size_t n) {
  int32_t a[8] = {0};
  for (size_t t = 0; t < taps; t++, w += n) {
    const int8_t *p = (const int8_t *)x[t] + c;
    _Pragma("GCC unroll 8") for (size_t i = 0; i < 8; i++) {
      a[i] += p[i] * w[i];
    }
  }
  _Pragma("GCC unroll 8") for (size_t i = 0; i < 8; i++) {
    sums[i] = a[i];
  }
}

NMP_DEPTHWISE(nmp_plain32_depthwise_8x8) {
  const int8_t *ws = w;
  int32_t *out = sums;
  size_t c = 0;
  for (; c + 8 <= n; c += 8) {
    eight_channels(out + c, x, c, ws + c, taps, n);
  }
  for (; c < n; c++) {
    out[c] = 0;
    for (size_t t = 0; t < taps; t++) {
      out[c] += ((const int8_t *)x[t])[c] * ws[t * n + c];
    }
  }
}

/* Any shift and bias. Rare, and a function, so that it takes no registers of the others. */
static __attribute__((noinline)) int32_t scale_exactly(int32_t sum, int shift, int32_t bias, int32_t lo, int32_t hi) {
  return nmp_sat(nmp_rsh(sum, shift) + bias, lo, hi);
}

/* Shifts of 1 to 31 to the right halve a sum at least, so that no bias below 2^30 makes it overflow. */
static inline int is_small(int shift, int32_t bias) {
  return shift > 0 && shift < 32 && bias > -(1 << 30) && bias < 1 << 30;
}

static inline int32_t scale(int32_t sum, int shift, int32_t bias, int32_t lo, int32_t hi) {
  int32_t v = (((sum >> (shift - 1)) + 1) >> 1) + bias;
  v = v < lo ? lo : v;
  return v > hi ? hi : v;
}

/* Several rows channel by channel, for what is the same in all of them; one by its neighbours. */
#define SCALE(name, Y)                                                                                  \
  NMP_SCALE(name) {                                                                                     \
    const int32_t *acc = sums;                                                                          \
    Y *out = y;                                                                                         \
    for (size_t c = 0; c < channels && rows == 1; c++) {                                                \
      const int32_t b = bias[c];                                                                        \
      const int s = shift[c];                                                                           \
      out[c] = (Y)(is_small(s, b) ? scale(acc[c], s, b, lo, hi) : scale_exactly(acc[c], s, b, lo, hi)); \
    }                                                                                                   \
    for (size_t c = 0; c < channels && rows > 1; c++) {                                                 \
      const int32_t *column = acc + c, b = bias[c];                                                     \
      const int s = shift[c], small = is_small(s, b);                                                   \
      Y *to = out + c;                                                                                  \
      for (size_t r = 0; r < rows && small; r++, column += channels, to += y_stride) {                  \
        *to = (Y)scale(*column, s, b, lo, hi);                                                          \
      }                                                                                                 \
      for (size_t r = 0; r < rows && !small; r++, column += channels, to += y_stride) {                 \
        *to = (Y)scale_exactly(*column, s, b, lo, hi);                                                  \
      }                                                                                                 \
    }                                                                                                   \
  }

SCALE(nmp_plain32_scale_32to8, int8_t)
SCALE(nmp_plain32_scale_32to16, int16_t)

/* Both operands are rows, and their sum fits 32 bits: one of the shifts is 0. */
#define ADD(name, X, MOST)                                                                                       \
  NMP_ADD(nmp_plain32_##name) {                                                                                  \
    const X *as = a, *bs = b;                                                                                    \
    X *ys = y;                                                                                                   \
    const int32_t lo = how->lo, hi = how->hi, p = 1 << how->a_shift, q = 1 << how->b_shift;                      \
    const int shift = how->shift;                                                                                \
    if (how->a_step == 1 && how->b_step == 1 && how->a_shift <= (MOST) && how->b_shift <= (MOST) && shift > 0 && \
        shift < 30) {                                                                                            \
      const int32_t half = 1 << (shift - 1);                                                                     \
      for (size_t i = 0; i < n; i++) {                                                                           \
        const int32_t v = (as[i] * p + bs[i] * q + half) >> shift;                                               \
        ys[i] = (X)(v < lo ? lo : v > hi ? hi : v);                                                              \
      }                                                                                                          \
    } else {                                                                                                     \
      nmp_##name(y, a, b, n, how);                                                                               \
    }                                                                                                            \
  }

ADD(add_8x8to8, int8_t, 21)
ADD(add_16x16to16, int16_t, 13)

#endif
