/* What quantizing a model asks of many rows of numbers: the sums of nmpconv/sums.py, in its order, so the same bytes.

Compiled without contraction to fused operations, which round once where numpy rounds twice. Arrays are row-major. */
#ifndef NMP_PYTHON_FITS_H
#define NMP_PYTHON_FITS_H

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

/* A second copy of a function for CPUs with wider registers, where the linker chooses. Both round alike. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__)
#define WIDE __attribute__((target_clones("avx2", "default")))
#define INTO inline __attribute__((always_inline))
#else
#define WIDE
#define INTO inline
#endif

namespace fits {

/* floor(x) of |x| < 2^51, without a call: the sum with 1.5 * 2^52 keeps no bit behind the point. */
INTO double floor_of(double x) {
  const double big = 6755399441055744.0;
  const double near = (x + big) - big;
  return near > x ? near - 1.0 : near;
}

INTO double clipped(double x, double low, double high) {
  const double up = x < low ? low : x;
  return up > high ? high : up;
}

constexpr size_t TILE = 64; /* columns whose sums are kept in the cache, apart from all else */

/* Sums of integers [rows, columns], and what they should have been, in real units. */
struct Rows {
  size_t rows, columns;
  const double *product;
  const float *wanted;
};

/* sums[c] = over rows, one after the other: wanted * to[c] - product * from[c]. */
INTO void differences(const Rows &x, const double *to, const double *from, double *sums) {
  for (size_t first = 0; first < x.columns; first += TILE) {
    const size_t count = std::min(TILE, x.columns - first);
    double sum[TILE] = {}, wanted_by[TILE], product_by[TILE];
    std::copy_n(to + first, count, wanted_by);
    std::copy_n(from + first, count, product_by);
    for (size_t r = 0; r < x.rows; r++) {
      const double *product = x.product + r * x.columns + first;
      const float *wanted = x.wanted + r * x.columns + first;
      for (size_t c = 0; c < count; c++) {
        sum[c] += static_cast<double>(wanted[c]) * wanted_by[c] - product[c] * product_by[c];
      }
    }
    std::copy_n(sum, count, sums + first);
  }
}

/* The activation of a layer from low to high, and the grid of its output. per_step: 1 / step. */
struct Output {
  double low, high, per_step, lo, hi;
};

/* sums[b][c] = over rows: the squared error of clip(floor(product * by[c] + half[c]) + biases[b][c]), in output steps.
 * BEFORE: of clip(floor((product + biases[b][c]) * by[c] + half[c])). */
template <bool BEFORE, int COUNT>
INTO void squares(const Rows &x, const double *by, const Output &of, const double *biases, double *sums) {
  for (size_t first = 0; first < x.columns; first += TILE) {
    const size_t count = std::min(TILE, x.columns - first);
    double sum[COUNT][TILE] = {}, bias[COUNT][TILE], factor[TILE], half[TILE], before[TILE], goal[TILE];
    for (size_t c = 0; c < count; c++) {
      factor[c] = by[first + c];
      half[c] = factor[c] < 1.0 ? 0.5 : 0.0;
    }
    for (size_t b = 0; b < COUNT; b++) {
      std::copy_n(biases + b * x.columns + first, count, bias[b]);
    }
    for (size_t r = 0; r < x.rows; r++) {
      const double *product = x.product + r * x.columns + first;
      const float *wanted = x.wanted + r * x.columns + first;
      for (size_t c = 0; c < count; c++) {
        before[c] = BEFORE ? product[c] : floor_of(product[c] * factor[c] + half[c]);
      }
      for (size_t c = 0; c < count; c++) {
        goal[c] = clipped(wanted[c], of.low, of.high) * of.per_step;
      }
      for (size_t b = 0; b < COUNT; b++) {
        for (size_t c = 0; c < count; c++) {
          const double sum_of = before[c] + bias[b][c];
          const double out = BEFORE ? floor_of(sum_of * factor[c] + half[c]) : sum_of;
          const double error = clipped(out, of.lo, of.hi) - goal[c];
          sum[b][c] += error * error;
        }
      }
    }
    for (size_t b = 0; b < COUNT; b++) {
      std::copy_n(sum[b], count, sums + b * x.columns + first);
    }
  }
}

/* products[g][i][j], i <= j: the sum over rows of x[g][i] * x[g][j]; totals[g][i]: of x. rows [count, groups, taps]. */
INTO void moments(size_t count, size_t groups, size_t taps, const int8_t *rows, int32_t *products, int32_t *totals) {
  std::vector<int16_t> columns(taps * count);
  for (size_t g = 0; g < groups; g++) {
    for (size_t r = 0; r < count; r++) {
      for (size_t k = 0; k < taps; k++) {
        columns[k * count + r] = rows[(r * groups + g) * taps + k];
      }
    }
    for (size_t i = 0; i < taps; i++) {
      const int16_t *a = &columns[i * count];
      int32_t total = 0;
      for (size_t r = 0; r < count; r++) {
        total += a[r];
      }
      totals[g * taps + i] = total;
      for (size_t j = i; j < taps; j++) {
        const int16_t *b = &columns[j * count];
        int32_t sum = 0;
        for (size_t r = 0; r < count; r++) {
          sum += a[r] * b[r];
        }
        products[(g * taps + i) * taps + j] = sum;
      }
    }
  }
}

/* out[r][g] = sum over k of rows[r][g][k] * weights[g][k], exact. Sum: a type that holds it. */
template <typename Sum, typename T>
INTO void by_channel(size_t count, size_t groups, size_t taps, const T *rows, const int16_t *weights, double *out) {
  for (size_t r = 0; r < count; r++) {
    for (size_t g = 0; g < groups; g++, rows += taps) {
      Sum sum = 0;
      for (size_t k = 0; k < taps; k++) {
        sum += static_cast<Sum>(rows[k] * weights[g * taps + k]);
      }
      *out++ = static_cast<double>(sum);
    }
  }
}

/* Where columns [start, end) of one group's weights are rounded, each with the errors of those before it. */
struct Block {
  size_t columns, start, end;
  double bias_step, lo, hi;
};

/* w: a row of columns. upper: [columns, columns]. q, errors: [end - start]. Column 0 is the bias, without limits. */
INTO void round_row(const Block &at, double *w, const double *upper, double step, double *q, double *errors) {
  for (size_t j = at.start; j < at.end; j++) {
    const double scale = j == 0 ? at.bias_step : step, *row = upper + j * at.columns;
    double rounded = std::floor(w[j] / scale + 0.5);
    rounded = j == 0 ? rounded : clipped(rounded, at.lo, at.hi);
    q[j - at.start] = rounded;
    const double error = (w[j] - rounded * scale) / row[j];
    errors[j - at.start] = error;
    for (size_t i = j + 1; i < at.end; i++) {
      w[i] -= error * row[i];
    }
  }
}

}  // namespace fits
#endif
