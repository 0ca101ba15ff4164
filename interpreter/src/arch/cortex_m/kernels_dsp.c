/* Kernels in which Cortex-M's DSP extension beats the portable ones: convolutions (conv_dsp.c), sums and differences
 * of two tensors. */
#include "arch/cortex_m/dsp.h"
#include "base/fixed.h"

#ifdef NMP_DSP

/* A pair of elements times the units of both operands, that of b with its sign, is one SMLAD. Products are at most 2^29
 * with units of at most 2^14, so that their sum and a rounding of at most 2^29 stay in int32.
 */
#define UNIT_MAX 14
#define SHIFT_MAX 30

typedef struct sum {
  uint32_t units;
  int32_t round, lo, hi;
  int shift;
} sum;

static int is_simple(const nmp_binary *how) {
  return how->a_step == 1 && how->b_step == 1 && how->a_shift <= UNIT_MAX && how->b_shift <= UNIT_MAX &&
         how->shift >= 0 && how->shift <= SHIFT_MAX;
}

static sum sum_of(const nmp_binary *how, int sign) {
  return (sum){.units = 1u << how->a_shift | (uint32_t)sign << (16 + how->b_shift),
               .round = how->shift > 0 ? (int32_t)1 << (how->shift - 1) : 0,
               .lo = how->lo,
               .hi = how->hi,
               .shift = how->shift};
}

/* The sum of a pair; `full` where the range is the type's. */
static inline int32_t add_pair(uint32_t pair, const sum *s, int bits, int full) {
  const int32_t v = dsp_mla2(pair, s->units, s->round) >> s->shift;
  if (full) {
    return bits == 8 ? dsp_int8(v) : dsp_int16(v);
  }
  return v < s->lo ? s->lo : v > s->hi ? s->hi : v;
}

DSP_INLINE void add_bytes(int8_t *y, const int8_t *a, const int8_t *b, size_t n, sum s, int full) {
  for (; n >= 4; n -= 4, a += 4, b += 4, y += 4) {
    const uint32_t p = dsp_load(a), q = dsp_load(b), first = dsp_low(p, q), last = dsp_high(p, q);
    dsp_store(y, dsp_bytes(add_pair(dsp_even(first), &s, 8, full), add_pair(dsp_odd(first), &s, 8, full),
                           add_pair(dsp_even(last), &s, 8, full), add_pair(dsp_odd(last), &s, 8, full)));
  }
  for (; n > 0; n--) {
    *y++ = (int8_t)add_pair(dsp_low((uint32_t)*a++, (uint32_t)*b++), &s, 8, full);
  }
}

DSP_INLINE void add_halves(int16_t *y, const int16_t *a, const int16_t *b, size_t n, sum s, int full) {
  for (; n >= 2; n -= 2, a += 2, b += 2, y += 2) {
    const uint32_t p = dsp_load(a), q = dsp_load(b);
    dsp_store(
        y, dsp_low((uint32_t)add_pair(dsp_low(p, q), &s, 16, full), (uint32_t)add_pair(dsp_high(p, q), &s, 16, full)));
  }
  if (n > 0) {
    *y = (int16_t)add_pair(dsp_low((uint32_t)*a, (uint32_t)*b), &s, 16, full);
  }
}

/* Sums and differences that are not simple, element by element. */
#define ADD(name, SIGN, TYPE, LOOP, LOWEST, HIGHEST)                                  \
  NMP_ADD(name) {                                                                     \
    const TYPE *as = a, *bs = b;                                                      \
    TYPE *ys = y;                                                                     \
    if (!is_simple(how)) {                                                            \
      for (size_t i = 0; i < n; i++) {                                                \
        const int64_t p = as[i * how->a_step] * ((int64_t)1 << how->a_shift);         \
        const int64_t q = bs[i * how->b_step] * ((int64_t)1 << how->b_shift);         \
        ys[i] = (TYPE)nmp_sat(nmp_rsh(p + (SIGN) * q, how->shift), how->lo, how->hi); \
      }                                                                               \
    } else if (how->lo == (LOWEST) && how->hi == (HIGHEST)) {                         \
      LOOP(ys, as, bs, n, sum_of(how, SIGN), 1);                                      \
    } else {                                                                          \
      LOOP(ys, as, bs, n, sum_of(how, SIGN), 0);                                      \
    }                                                                                 \
  }

ADD(nmp_dsp_add_8, 1, int8_t, add_bytes, INT8_MIN, INT8_MAX)
ADD(nmp_dsp_add_16, 1, int16_t, add_halves, INT16_MIN, INT16_MAX)
ADD(nmp_dsp_sub_8, -1, int8_t, add_bytes, INT8_MIN, INT8_MAX)
ADD(nmp_dsp_sub_16, -1, int16_t, add_halves, INT16_MIN, INT16_MAX)

#endif
