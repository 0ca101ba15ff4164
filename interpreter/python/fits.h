/* Questions that quantizing a model asks of many rows of numbers: the sums of nmpconv/calib/native_sums.py, in its
order, so the same bytes.

Compiled without contraction to fused operations, which round once where numpy rounds twice. Arrays are row-major. */
#ifndef NMP_PYTHON_FITS_H
#define NMP_PYTHON_FITS_H

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "grid.h"

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

constexpr size_t WIDE_TILE = 1024;
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

/* products[g][i][j], i <= j: the sum over rows of x[i][g] * x[j][g]; totals[g][i]: of x. rows [count, taps, groups].
 *
 * Two rows at a time: the sum of two products of int8, from -32512 to 32768, fits int16 when it is less 1. */
INTO void moments(size_t count, size_t groups, size_t taps, const int8_t *rows, int32_t *products, int32_t *totals) {
  const size_t pairs = (count + 1) / 2;
  std::vector<int16_t> two(2 * taps * TILE);
  std::vector<int32_t> sums((taps + 1) * taps * TILE);
  for (size_t first = 0; first < groups; first += TILE) {
    const size_t some = std::min(TILE, groups - first);
    std::fill(sums.begin(), sums.end(), 0);
    for (size_t r = 0; r < count; r += 2) {
      const int8_t *x = rows + r * taps * groups + first, *y = x + taps * groups;
      for (size_t i = 0; i < taps; i++) {
        std::copy_n(x + i * groups, some, &two[2 * i * TILE]);
        if (r + 1 < count) {
          std::copy_n(y + i * groups, some, &two[(2 * i + 1) * TILE]);
        } else {
          std::fill_n(&two[(2 * i + 1) * TILE], TILE, 0);
        }
      }
      for (size_t i = 0; i < taps; i++) {
        const int16_t *a = &two[2 * i * TILE];
        int32_t *sum = &sums[i * TILE];
        for (size_t c = 0; c < TILE; c++) {
          sum[c] += static_cast<int16_t>(a[c] + a[TILE + c]);
        }
        for (size_t j = i; j < taps; j++) {
          const int16_t *b = &two[2 * j * TILE];
          sum = &sums[((i + 1) * taps + j) * TILE];
          for (size_t c = 0; c < TILE; c++) {
            sum[c] += static_cast<int16_t>(a[c] * b[c] + a[TILE + c] * b[TILE + c] - 1);
          }
        }
      }
    }
    for (size_t c = 0; c < some; c++) {
      for (size_t i = 0; i < taps; i++) {
        totals[(first + c) * taps + i] = sums[i * TILE + c];
        for (size_t j = i; j < taps; j++) {
          const int32_t sum = sums[((i + 1) * taps + j) * TILE + c];
          products[((first + c) * taps + i) * taps + j] = sum + static_cast<int32_t>(pairs);
        }
      }
    }
  }
}

/* out[r][g] = sum over k of rows[r][k][g] * weights[k][g], exact. Sum: a type that holds it. */
template <typename Sum, typename T>
INTO void by_channel(size_t count, size_t groups, size_t taps, const T *rows, const int16_t *weights, double *out) {
  for (size_t r = 0; r < count; r++, rows += taps * groups, out += groups) {
    for (size_t first = 0; first < groups; first += TILE) {
      const size_t some = std::min(TILE, groups - first);
      Sum sum[TILE] = {};
      for (size_t k = 0; k < taps; k++) {
        const T *x = rows + k * groups + first;
        const int16_t *w = weights + k * groups + first;
        for (size_t c = 0; c < some; c++) {
          sum[c] += static_cast<Sum>(x[c] * w[c]);
        }
      }
      std::copy_n(sum, some, out + first);
    }
  }
}

/* The least and the largest of each column, and its sum row after row. What is no number stays. */
INTO void extremes(size_t rows, size_t columns, const float *x, float *__restrict low, float *__restrict high,
                   float *__restrict sum) {
  for (float *to : {low, high, sum}) {
    std::copy_n(x, columns, to);
  }
  for (size_t first = 0; first < columns; first += WIDE_TILE) {
    const size_t last = std::min(first + WIDE_TILE, columns);
    for (size_t r = 1; r < rows; r++) {
      const float *row = x + r * columns;
      for (size_t c = first; c < last; c++) {
        const float value = row[c];
        low[c] = value >= low[c] || low[c] != low[c] ? low[c] : value;
        high[c] = value <= high[c] || high[c] != high[c] ? high[c] : value;
        sum[c] += value;
      }
    }
  }
}

/* The bin of a value that is scaled. */
INTO int32_t bin_of(float scaled, int32_t middle) {
  const int32_t whole = static_cast<int32_t>(scaled);
  const int32_t bin = whole - (scaled < static_cast<float>(whole)) + middle;
  return std::max(std::min(bin, 2 * middle - 1), 0);
}

/* `bins` of few values, one by one. */
INTO int64_t few_bins(size_t count, const float *x, float scale, size_t half, int64_t *counts) {
  int64_t zeros = 0;
  std::fill_n(counts, 2 * half, 0);
  for (size_t i = 0; i < count; i++) {
    counts[bin_of(x[i] * scale, static_cast<int32_t>(half))]++;
    zeros += x[i] == 0.0f;
  }
  return zeros;
}

/* counts[floor(x * scale) + half]++, and how many are 0, which count, too. |x * scale| <= half; at half, the last one.
 *
 * Some bins are found before they are counted: only that keeps vectors busy. */
INTO int64_t bins(size_t count, const float *x, float scale, size_t half, int64_t *counts) {
  if (count < half) {
    return few_bins(count, x, scale, half, counts);
  }
  std::vector<uint32_t> odd(2 * half), even(2 * half); /* the same bin twice in a row is no wait */
  const int32_t middle = static_cast<int32_t>(half);
  int64_t zeros = 0;
  for (size_t first = 0; first < count; first += WIDE_TILE) {
    const size_t some = std::min(WIDE_TILE, count - first);
    int32_t at[WIDE_TILE], none = 0;
    for (size_t i = 0; i < some; i++) {
      at[i] = bin_of(x[first + i] * scale, middle);
      none += x[first + i] == 0.0f;
    }
    zeros += none;
    for (size_t i = 0; i + 1 < some; i += 2) {
      even[static_cast<size_t>(at[i])]++;
      odd[static_cast<size_t>(at[i + 1])]++;
    }
    if (some % 2 != 0) {
      even[static_cast<size_t>(at[some - 1])]++;
    }
  }
  for (size_t i = 0; i < 2 * half; i++) {
    counts[i] = static_cast<int64_t>(even[i]) + odd[i];
  }
  return zeros;
}

/* Grid that integrals of squared errors are made for: one step and its third power, the least and the largest integer,
   and how often errors beyond them count. */
struct Grid {
  double step, cube, lo, hi, saturated;
};

/* Bins [count]: edges, widths and weights, and where the next one does not begin at the end of one. */
struct Bins {
  size_t count;
  const double *low, *high, *width, *weight;
  const bool *ends;
};

constexpr size_t LANES = 8; /* of a sum: the order of additions is the same on each CPU */

/* The integral from 0 to x, see calib/native_sums.py. */
INTO double integral(double x, const Grid &grid) {
  const double half = grid.step / 2;
  const double level = clipped(std::floor(x / grid.step + 0.5), grid.lo, grid.hi);
  const double left = x - level * grid.step, near = clipped(left, -half, half);
  const double third = grid.saturated * (left * left * left) - (grid.saturated - 1) * (near * near * near);
  return level * grid.cube / 12 + third / 3;
}

/* The sum of weight[i] times the mean error over bin i less origin. begins: [count], scratch. */
INTO double bin_error(const Bins &bins, double origin, const Grid &grid, double *begins) {
  for (size_t i = 0; i < bins.count; i++) {
    begins[i] = integral(bins.low[i] - origin, grid);
  }
  double sums[LANES] = {}, sum = 0;
  for (size_t first = 0; first < bins.count; first += LANES) {
    const size_t some = std::min(LANES, bins.count - first);
    for (size_t lane = 0; lane < some; lane++) {
      const size_t i = first + lane;
      const double end = bins.ends[i] ? integral(bins.high[i] - origin, grid) : begins[i + 1];
      sums[lane] += bins.weight[i] * ((end - begins[i]) / bins.width[i]);
    }
  }
  for (const double part : sums) {
    sum += part;
  }
  return sum;
}

/* Bins of a histogram that are in use, ascending, and their counts: bin b is [b - half, b + 1 - half) * width. */
struct Counts {
  size_t count;
  const int64_t *bins;
  const double *counts;
  double half, width, per_step;
};

/* Points that stand for what was counted, see calib/histogram.py: returns how many, and writes them where x is not
 * null. A bin that the reach ends in is two. */
INTO size_t points(const Counts &of, double step, double reach, double *x, double *weight) {
  const double first = of.half - reach / of.width, last = of.half + reach / of.width;
  size_t total = 0;
  for (size_t i = 0; i < of.count; i++) {
    const double begin = static_cast<double>(of.bins[i]), end = begin + 1;
    const double cut = begin < first && first < end ? first : begin < last && last < end ? last : end;
    for (double start = begin, stop = cut; start < end; start = stop, stop = end) {
      const double size = stop - start;
      double many = std::max(1.0, std::ceil(of.per_step * of.width / step * size));
      if (std::fabs(start + size / 2 - of.half) * of.width > reach) {
        many = std::min(many, of.per_step);
      }
      const size_t here = static_cast<size_t>(many);
      if (x != nullptr) {
        for (size_t k = 0; k < here; k++) {
          x[total + k] = (start + (static_cast<double>(k) + 0.5) / many * size - of.half) * of.width;
        }
        std::fill_n(weight + total, here, of.counts[i] * size / many);
      }
      total += here;
    }
  }
  return total;
}

/* Grids that points are rounded to: the first sizes[0] points to those of row 0, and so on. steps: [rows, columns].
 * origins: [rows]. lo, hi: the least and the largest level. */
struct Grids {
  size_t rows, columns;
  const int64_t *sizes;
  const double *steps, *origins;
  double lo, hi;
};

/* got: [columns, count], the nearest numbers on the grids. table: [columns, rows, levels], what stands for these, or
 * null. */
INTO void nearest(const Grids &of, size_t count, const double *x, const double *table, double *got) {
  const size_t levels = static_cast<size_t>(of.hi - of.lo) + 1;
  for (size_t column = 0; column < of.columns; column++) {
    const double *from = x;
    double *to = got + column * count;
    for (size_t row = 0; row < of.rows; row++) {
      const double step = of.steps[row * of.columns + column], origin = of.origins[row];
      const double *entries = table == nullptr ? nullptr : table + (column * of.rows + row) * levels;
      const size_t size = static_cast<size_t>(of.sizes[row]);
      for (size_t i = 0; i < size; i++) {
        to[i] = clipped(std::floor((from[i] - origin) / step + 0.5), of.lo, of.hi);
      }
      for (size_t i = 0; i < size; i++) {
        to[i] = table == nullptr ? origin + to[i] * step : entries[static_cast<size_t>(to[i] - of.lo)];
      }
      from += size;
      to += size;
    }
  }
}

/* A sum of count terms in lanes. */
template <typename Term>
INTO double sum_of(size_t count, Term term) {
  double sums[LANES] = {}, sum = 0;
  size_t first = 0;
  for (; first + LANES <= count; first += LANES) {
    for (size_t lane = 0; lane < LANES; lane++) {
      sums[lane] += term(first + lane);
    }
  }
  for (; first < count; first++) {
    sums[first % LANES] += term(first);
  }
  for (const double part : sums) {
    sum += part;
  }
  return sum;
}

/* power: [rows], sums of weight * signal^2. errors: [rows, columns], of weight * (signal - got)^2, saturated times
 * where the level nearest to x lies beyond the grid. x, weight, signal: [count]. got: [columns, count]. */
INTO void errors_after(const Grids &of, size_t count, double saturated, const double *x, const double *weight,
                       const double *signal, const double *got, double *power, double *errors) {
  for (size_t row = 0; row < of.rows; row++) {
    const size_t size = static_cast<size_t>(of.sizes[row]);
    power[row] = sum_of(size, [=](size_t i) { return weight[i] * (signal[i] * signal[i]); });
    for (size_t column = 0; column < of.columns; column++) {
      const double step = of.steps[row * of.columns + column], origin = of.origins[row], lo = of.lo, hi = of.hi;
      const double *found = got + column * count;
      errors[row * of.columns + column] = sum_of(size, [=](size_t i) {
        const double exact = std::floor((x[i] - origin) / step + 0.5), error = signal[i] - found[i];
        return weight[i] * (error * error * (exact < lo || exact > hi ? saturated : 1.0));
      });
    }
    x += size;
    weight += size;
    signal += size;
    got += size;
  }
}

/* Columns [start, end) of one group's weights as they are rounded, each with the errors of those before it. */
struct Block {
  size_t columns, start, end;
  double bias_step, lo, hi;
};

/* w, goal: rows of columns. shares: [columns, columns]. q, errors: [end - start]. Column 0 is the bias, without
 * limits. */
INTO void round_row(const Block &at, const double *w, double *goal, const double *shares, double step, double *q,
                    double *errors) {
  for (size_t j = at.start; j < at.end; j++) {
    const double scale = j == 0 ? at.bias_step : step, *row = shares + j * at.columns;
    double rounded = std::floor(goal[j] / scale + 0.5);
    rounded = j == 0 ? rounded : clipped(rounded, at.lo, at.hi);
    q[j - at.start] = rounded;
    const double error = w[j] - rounded * scale;
    errors[j - at.start] = error;
    for (size_t i = j + 1; i < at.end; i++) {
      goal[i] += error * row[i];
    }
  }
}

}  // namespace fits
#endif
