/* Sums of sizes and the bits of a number, which every folder needs. */
#ifndef NMP_BASE_UTIL_H
#define NMP_BASE_UTIL_H

#include <stddef.h>
#include <stdint.h>

#include "base/build.h"

#define NMP_CACHE_LINE 64 /* bytes; workers do not share one */

static inline size_t nmp_min(size_t a, size_t b) {
  return a < b ? a : b;
}

static inline size_t nmp_max(size_t a, size_t b) {
  return a > b ? a : b;
}

/* n, or the largest int64 for more. */
static inline int64_t nmp_capped(uint64_t n) {
  return n > INT64_MAX ? INT64_MAX : (int64_t)n;
}

/* The next multiple of unit; n + unit fits. */
static inline size_t nmp_round_up(size_t n, size_t unit) {
  return (n + unit - 1) / unit * unit;
}

/* The bits of v > 0 from its highest one down. */
static inline int nmp_bits_of(uint64_t v) {
#if defined(__GNUC__) && !NMP_FIXED_CPU
  return 64 - __builtin_clzll(v);
#else
  int bits = 1;
  for (int half = 32; half > 0; half /= 2) {
    if (v >> half) {
      bits += half;
      v >>= half;
    }
  }
  return bits;
#endif
}

#endif
