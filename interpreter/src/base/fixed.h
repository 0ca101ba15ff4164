/* Rounding and saturation, the twin of nmpconv/base/fixed_point.py: the only two places where they are written. */
#ifndef NMP_BASE_FIXED_H
#define NMP_BASE_FIXED_H

#include <stdint.h>

/* Legal ranges of the format (FORMAT.md). */
#define NMP_EXPONENT_MIN (-64)
#define NMP_EXPONENT_MAX 63
#define NMP_SHIFT_MIN (-15)
#define NMP_SHIFT_MAX 47

/* floor((a + 2^(s-1)) / 2^s) for s > 0, a for s = 0, a * 2^-s for s < 0. |a| < 2^62 for s >= 0, |a| < 2^47 for s < 0.
 */
static inline int64_t nmp_rsh(int64_t a, int s) {
  if (s > 0) {
    return (a + ((int64_t)1 << (s - 1))) >> s;
  }
  return a * ((int64_t)1 << -s);
}

/* 1: quotients of 64 bits come bit by bit, since the library's division takes 860 bytes of a microcontroller. */
#ifndef NMP_SMALL_DIVISION
#define NMP_SMALL_DIVISION (UINTPTR_MAX <= UINT32_MAX)
#endif

/* floor(a / b), b > 0; as many steps as the quotient has bits. */
static inline int64_t nmp_quotient(int64_t a, int64_t b) {
#if NMP_SMALL_DIVISION
  uint64_t rest = a < 0 ? (uint64_t)-a : (uint64_t)a, part = (uint64_t)b, bit = 1, quotient = 0;
  for (; part <= rest >> 1; part <<= 1) {
    bit <<= 1;
  }
  for (; bit > 0; bit >>= 1, part >>= 1) {
    if (rest >= part) {
      rest -= part;
      quotient |= bit;
    }
  }
  return a < 0 ? -(int64_t)quotient - (rest > 0) : (int64_t)quotient;
#else
  return a / b - (a % b < 0);
#endif
}

/* floor(num / den + 1/2), den > 0: a quotient rounded half up. |num| < 2^61, den < 2^61. */
static inline int64_t nmp_div(int64_t num, int64_t den) {
  const int64_t a = 2 * num + den, b = 2 * den;
  if (a == (int32_t)a && b == (int32_t)b) { /* what small machines have an instruction for */
    const int32_t x = (int32_t)a, y = (int32_t)b;
    return x / y - (x % y < 0);
  }
  return nmp_quotient(a, b);
}

static inline int32_t nmp_sat(int64_t a, int32_t lo, int32_t hi) {
  return a < lo ? lo : a > hi ? hi : (int32_t)a;
}

#endif
