/* Real numbers on the grid of a port, integer * 2^exponent with integers of 8 or 16 bits in [lo, hi].
 *
 * Compiled without contraction to fused operations: what is computed here is exact.
 */
#ifndef NMP_PYTHON_GRID_H
#define NMP_PYTHON_GRID_H

#include <cstddef>
#include <cstdint>

/* A second copy of a function for CPUs with wider registers, where the linker chooses. Both round alike. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__)
#define WIDE __attribute__((target_clones("avx2", "default")))
#define INTO inline __attribute__((always_inline))
#else
#define WIDE
#define INTO inline
#endif

namespace grid {

/* to: x * scale, a power of two, rounded half up within [lo, hi]: exact in float32. Returns whether all of x is
 * finite. */
bool integers(size_t n, const float *x, float scale, float lo, float hi, int8_t *to);
bool integers(size_t n, const float *x, float scale, float lo, float hi, int16_t *to);

/* to: q * step, a power of two. */
void reals(size_t n, const int8_t *q, double step, double *to);
void reals(size_t n, const int16_t *q, double step, double *to);

}  // namespace grid

#endif
