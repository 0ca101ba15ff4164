/* The functions of fits.h for Python. nmpconv/calib/native_sums.py makes the arrays: of these types, contiguous, of
   shapes that fit. */
#include "fits.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/tuple.h>

#include "gil.h"

namespace nb = nanobind;

namespace {

WIDE void all_differences(const fits::Rows &x, const double *to, const double *from, double *sums) {
  fits::differences(x, to, from, sums);
}

WIDE void all_squares(const fits::Rows &x, const double *by, const fits::Output &y, size_t count, bool before,
                      const double *biases, double *sums) {
  if (before) {
    fits::squares<true, 5>(x, by, y, biases, sums);
  } else if (count == 3) {
    fits::squares<false, 3>(x, by, y, biases, sums);
  } else {
    fits::squares<false, 4>(x, by, y, biases, sums);
  }
}

WIDE void all_moments(size_t count, size_t groups, size_t taps, const int8_t *rows, int32_t *products,
                      int32_t *totals) {
  fits::moments(count, groups, taps, rows, products, totals);
}

WIDE void all_by_channel(size_t count, size_t groups, size_t taps, const int8_t *rows, const int16_t *weights,
                         double *out) {
  fits::by_channel<int32_t>(count, groups, taps, rows, weights, out);
}

void all_by_channel(size_t count, size_t groups, size_t taps, const int16_t *rows, const int16_t *weights,
                    double *out) {
  fits::by_channel<int64_t>(count, groups, taps, rows, weights, out);
}

WIDE void all_extremes(size_t rows, size_t columns, const float *x, float *low, float *high, float *sum) {
  fits::extremes(rows, columns, x, low, high, sum);
}

WIDE int64_t all_bins(size_t count, const float *x, float scale, size_t half, int64_t *counts) {
  return fits::bins(count, x, scale, half, counts);
}

/* grids: [3, count], steps, their third powers and origins. */
WIDE void all_bin_errors(const fits::Bins &bins, size_t count, const double *grids, const fits::Grid &common,
                         double *found) {
  std::vector<double> begins(bins.count);
  for (size_t i = 0; i < count; i++) {
    const fits::Grid grid = {grids[i], grids[count + i], common.lo, common.hi, common.saturated};
    found[i] = fits::bin_error(bins, grids[2 * count + i], grid, begins.data());
  }
}

WIDE void all_rows(const fits::Block &at, size_t rows, size_t outs, const double *w, double *goal, const double *shares,
                   const double *step, double *q, double *errors) {
  for (size_t row = 0; row < rows; row++) {
    fits::round_row(at, w + row * at.columns, goal + row * at.columns, shares + row / outs * at.columns * at.columns,
                    step[row], q + row * (at.end - at.start), errors + row * (at.end - at.start));
  }
}

WIDE void all_points(const fits::Counts &of, double zeros, size_t rows, const double *grids, int64_t *sizes, double *x,
                     double *weight) {
  for (size_t row = 0; row < rows; row++) {
    const size_t count = fits::points(of, grids[row], grids[rows + row], x, weight);
    sizes[row] = static_cast<int64_t>(count) + 1;
    if (x != nullptr) {
      x[count] = 0.0;
      weight[count] = zeros;
      x += count + 1;
      weight += count + 1;
    }
  }
}

WIDE void all_nearest(const fits::Grids &of, size_t count, const double *x, const double *table, double *got) {
  fits::nearest(of, count, x, table, got);
}

WIDE void all_errors_after(const fits::Grids &of, size_t count, double saturated, const double *x, const double *weight,
                           const double *signal, const double *got, double *power, double *errors) {
  fits::errors_after(of, count, saturated, x, weight, signal, got, power, errors);
}

template <typename T, size_t RANK>
using Array = nb::ndarray<T, nb::ndim<RANK>, nb::c_contig, nb::device::cpu>;

using Products = Array<const double, 2>;
using Wanted = Array<const float, 2>;

fits::Rows rows_of(const Products &product, const Wanted &wanted) {
  return {product.shape(0), product.shape(1), product.data(), wanted.data()};
}

void differences(Products product, Wanted wanted, Array<const double, 1> to, Array<const double, 1> from,
                 Array<double, 1> sums) {
  const Unlocked unlocked;
  all_differences(rows_of(product, wanted), to.data(), from.data(), sums.data());
}

/* y: low, high, 1 / step, lo, hi. biases: 5 of them where they come before the shift, else 3 or 4. */
void squares(Products product, Wanted wanted, Array<const double, 1> by, Array<const double, 1> y, bool before,
             Array<const double, 2> biases, Array<double, 2> sums) {
  const Unlocked unlocked;
  const double *of = y.data();
  all_squares(rows_of(product, wanted), by.data(), {of[0], of[1], of[2], of[3], of[4]}, biases.shape(0), before,
              biases.data(), sums.data());
}

template <typename T>
bool on_grid(Array<const float, 1> x, float scale, float lo, float hi, Array<T, 1> to) {
  const Unlocked unlocked;
  return grid::integers(x.shape(0), x.data(), scale, lo, hi, to.data());
}

void moments(Array<const int8_t, 3> rows, Array<int32_t, 3> products, Array<int32_t, 2> totals) {
  const Unlocked unlocked;
  all_moments(rows.shape(0), rows.shape(2), rows.shape(1), rows.data(), products.data(), totals.data());
}

template <typename T>
void by_channel(Array<const T, 3> rows, Array<const int16_t, 2> weights, Array<double, 2> out) {
  const Unlocked unlocked;
  all_by_channel(rows.shape(0), rows.shape(2), rows.shape(1), rows.data(), weights.data(), out.data());
}

void extremes(Array<const float, 3> x, Array<float, 3> found) {
  const Unlocked unlocked;
  const size_t rows = x.shape(1), columns = x.shape(2);
  float *low = found.data();
  for (size_t sample = 0; sample < x.shape(0); sample++, low += 3 * columns) {
    all_extremes(rows, columns, x.data() + sample * rows * columns, low, low + columns, low + 2 * columns);
  }
}

int64_t bins(Array<const float, 1> x, float scale, Array<int64_t, 1> counts) {
  const Unlocked unlocked;
  return all_bins(x.shape(0), x.data(), scale, counts.shape(0) / 2, counts.data());
}

/* table: [4, n], lower and upper edges, widths, weights. */
void bin_errors(Array<const double, 2> table, Array<const bool, 1> ends, Array<const double, 2> grids, double lo,
                double hi, double saturated, Array<double, 1> found) {
  const Unlocked unlocked;
  const size_t count = table.shape(1);
  const double *low = table.data();
  const fits::Bins bins{count, low, low + count, low + 2 * count, low + 3 * count, ends.data()};
  all_bin_errors(bins, grids.shape(1), grids.data(), {0, 0, lo, hi, saturated}, found.data());
}

/* grids: [2, rows], steps and reaches. sizes: [rows]. x, weight: [0], or [sum of sizes]: a last point of each row, of
 * value 0, counts zeros. */
void points(Array<const int64_t, 1> bins, Array<const double, 1> counts, std::tuple<double, double, double, double> of,
            Array<const double, 2> grids, Array<int64_t, 1> sizes, Array<double, 1> x, Array<double, 1> weight) {
  const Unlocked unlocked;
  const auto [half, width, per_step, zeros] = of;
  const fits::Counts counted{bins.shape(0), bins.data(), counts.data(), half, width, per_step};
  all_points(counted, zeros, grids.shape(1), grids.data(), sizes.data(), x.shape(0) ? x.data() : nullptr,
             weight.data());
}

using Sizes = Array<const int64_t, 1>;
using Steps = Array<const double, 2>;
using Ends = std::tuple<double, double>;

fits::Grids grids_of(const Sizes &sizes, const Steps &steps, const Array<const double, 1> &origins, const Ends &ends) {
  const auto [lo, hi] = ends;
  return {steps.shape(0), steps.shape(1), sizes.data(), steps.data(), origins.data(), lo, hi};
}

/* table: [0], or [columns * rows * levels]. */
void nearest(Array<const double, 1> x, Sizes sizes, Steps steps, Array<const double, 1> origins, Ends ends,
             Array<const double, 1> table, Array<double, 2> got) {
  const Unlocked unlocked;
  const double *entries = table.shape(0) ? table.data() : nullptr;
  all_nearest(grids_of(sizes, steps, origins, ends), x.shape(0), x.data(), entries, got.data());
}

void errors_after(Array<const double, 1> x, Array<const double, 1> weight, Array<const double, 1> signal,
                  Array<const double, 2> got, Sizes sizes, Steps steps, Array<const double, 1> origins, Ends ends,
                  double saturated, Array<double, 1> power, Array<double, 2> errors) {
  const Unlocked unlocked;
  all_errors_after(grids_of(sizes, steps, origins, ends), x.shape(0), saturated, x.data(), weight.data(), signal.data(),
                   got.data(), power.data(), errors.data());
}

void round_columns(Array<const double, 3> w, Array<double, 3> goal, Array<const double, 3> shares,
                   Array<const double, 2> step, Array<const double, 1> limits, size_t start, Array<double, 3> q,
                   Array<double, 3> errors) {
  const Unlocked unlocked;
  const size_t outs = w.shape(1), columns = w.shape(2), width = errors.shape(2);
  const fits::Block at{columns, start, start + width, limits.data()[0], limits.data()[1], limits.data()[2]};
  all_rows(at, w.shape(0) * outs, outs, w.data(), goal.data(), shares.data(), step.data(), q.data(), errors.data());
}

}  // namespace

void add_fits(nb::module_ &m) {
  m.def("differences", &differences);
  m.def("squares", &squares);
  m.def("on_grid", &on_grid<int8_t>, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().noconvert());
  m.def("on_grid", &on_grid<int16_t>, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().noconvert());
  m.def("moments", &moments);
  m.def("by_channel", &by_channel<int8_t>);
  m.def("by_channel", &by_channel<int16_t>);
  m.def("extremes", &extremes);
  m.def("bins", &bins);
  m.def("bin_errors", &bin_errors);
  m.def("points", &points);
  m.def("nearest", &nearest);
  m.def("errors_after", &errors_after);
  m.def("round_columns", &round_columns);
}
