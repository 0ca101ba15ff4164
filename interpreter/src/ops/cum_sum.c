/* y = sat(rsh(sum of x along an axis from its start, or with `reverse` its end, up to here, e_y - e_x)). */
#include "ops/common/tasks.h"

#define AXIS_MAX 65536 /* sums of int16 lie in [-2^31, 2^31 - 2^16] */

static nmp_rule cum_sum_check(const nmp_op *op) {
  NMP_TRY(nmp_check_inputs(op, 1, 1, 1));
  const nmp_tensor *x = &op->in[0], *y = &op->out[0];
  const int32_t axis = op->params.cum_sum.axis;
  NMP_TRY(nmp_check_same_shape(x, y));
  NMP_COMPARE(axis, >=, 0, "axis");
  NMP_REQUIRE(axis < x->rank, "axis", axis, x->rank - 1);
  NMP_COMPARE(x->shape[axis], <=, AXIS_MAX, "length of the axis");
  return nmp_check_shift(y->exponent - x->exponent);
}

/* One line of n elements from `first`, `step` apart. Every x is read before its y is written: they may coincide. */
static void line(const nmp_op *op, size_t first, size_t step, size_t n) {
  const nmp_tensor *x = &op->in[0], *y = &op->out[0];
  const nmp_cum_sum_params *p = &op->params.cum_sum;
  const int shift = y->exponent - x->exponent;
  int32_t sum = 0;
  for (size_t i = 0; i < n; i++) {
    const size_t at = first + (p->reverse ? n - 1 - i : i) * step;
    const int32_t before = sum;
    sum += nmp_load(x, at);
    nmp_store(y, at, nmp_rsh(p->exclusive ? before : sum, shift));
  }
}

static void run_lines(const nmp_op *op, const void *how, size_t first, size_t last) {
  const nmp_tensor *x = &op->in[0];
  const uint32_t axis = (uint32_t)op->params.cum_sum.axis;
  const size_t n = (size_t)x->shape[axis];
  size_t step = 1;
  for (uint32_t i = axis + 1; i < x->rank; i++) {
    step *= (size_t)x->shape[i];
  }
  (void)how;
  for (size_t i = first; i < last; i++) {
    line(op, i / step * n * step + i % step, step, n);
  }
}

static uint64_t cum_sum_work(const nmp_op *op) {
  return (uint64_t)op->in[0].size * 4;
}

static void cum_sum_run(const nmp_op *op) {
  const nmp_tensor *x = &op->in[0];
  nmp_run_tasks(op, x->size / (size_t)x->shape[op->params.cum_sum.axis], cum_sum_work(op), run_lines, NULL);
}

const nmp_op_type nmp_cum_sum_type = {.check = cum_sum_check, .run = cum_sum_run, .in_place = 1, .work = cum_sum_work};
