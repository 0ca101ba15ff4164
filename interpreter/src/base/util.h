/* Sums of sizes, which every folder makes. */
#ifndef NMP_BASE_UTIL_H
#define NMP_BASE_UTIL_H

#include <stddef.h>

#define NMP_CACHE_LINE 64 /* bytes; workers do not share one */

static inline size_t nmp_min(size_t a, size_t b) {
  return a < b ? a : b;
}

static inline size_t nmp_max(size_t a, size_t b) {
  return a > b ? a : b;
}

/* The next multiple of unit; n + unit fits. */
static inline size_t nmp_round_up(size_t n, size_t unit) {
  return (n + unit - 1) / unit * unit;
}

#endif
