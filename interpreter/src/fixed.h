/* Rounding and saturation, the twin of nmpconv/fixed.py: the only two places where they are written. */
#ifndef NMP_FIXED_H
#define NMP_FIXED_H

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

/* floor(num / den + 1/2), den > 0: a quotient rounded half up. |num| < 2^61, den < 2^61. */
static inline int64_t nmp_div(int64_t num, int64_t den) {
  const int64_t a = 2 * num + den, b = 2 * den;
  if (a == (int32_t)a && b == (int32_t)b) { /* what small machines have an instruction for */
    const int32_t x = (int32_t)a, y = (int32_t)b;
    return x / y - (x % y < 0);
  }
  return a / b - (a % b < 0);
}

static inline int32_t nmp_sat(int64_t a, int32_t lo, int32_t hi) {
  return a < lo ? lo : a > hi ? hi : (int32_t)a;
}

#endif
