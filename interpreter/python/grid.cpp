#include "grid.h"

namespace grid {
namespace {

template <typename T>
INTO bool to_integers(size_t n, const float *x, float scale, float lo, float hi, T *to) {
  int32_t infinite = 0;
  for (size_t i = 0; i < n; i++) {
    infinite |= x[i] - x[i] != 0.0f;
    const float above = x[i] * scale > lo ? x[i] * scale : lo;
    const float within = above < hi ? above : hi;
    const int32_t near = static_cast<int32_t>(within), below = near - (within < static_cast<float>(near));
    to[i] = static_cast<T>(below + (within - static_cast<float>(below) >= 0.5f));
  }
  return !infinite;
}

template <typename T>
INTO void to_reals(size_t n, const T *q, double step, double *to) {
  for (size_t i = 0; i < n; i++) {
    to[i] = q[i] * step;
  }
}

WIDE bool integers_8(size_t n, const float *x, float scale, float lo, float hi, int8_t *to) {
  return to_integers(n, x, scale, lo, hi, to);
}

WIDE bool integers_16(size_t n, const float *x, float scale, float lo, float hi, int16_t *to) {
  return to_integers(n, x, scale, lo, hi, to);
}

WIDE void reals_8(size_t n, const int8_t *q, double step, double *to) {
  to_reals(n, q, step, to);
}

WIDE void reals_16(size_t n, const int16_t *q, double step, double *to) {
  to_reals(n, q, step, to);
}

}  // namespace

bool integers(size_t n, const float *x, float scale, float lo, float hi, int8_t *to) {
  return integers_8(n, x, scale, lo, hi, to);
}

bool integers(size_t n, const float *x, float scale, float lo, float hi, int16_t *to) {
  return integers_16(n, x, scale, lo, hi, to);
}

void reals(size_t n, const int8_t *q, double step, double *to) {
  reals_8(n, q, step, to);
}

void reals(size_t n, const int16_t *q, double step, double *to) {
  reals_16(n, q, step, to);
}

}  // namespace grid
