/* The indices of the largest or smallest elements along an axis, the first or the last of equal ones first. */
#include "ops/common/check.h"

#define AXIS_MAX 32768

static nmp_rule arg_max_check(const nmp_op *op) {
  NMP_TRY(nmp_check_inputs(op, 1, 1, 1));
  const nmp_tensor *x = &op->in[0], *y = &op->out[0];
  const int32_t axis = op->params.arg_max.axis, count = op->params.arg_max.count;
  NMP_REQUIRE(y->rank == x->rank, "rank of the output", y->rank, x->rank);
  NMP_REQUIRE(axis >= 0, "axis", axis, 0);
  NMP_REQUIRE(axis < x->rank, "axis", axis, x->rank - 1);
  NMP_REQUIRE(x->shape[axis] <= AXIS_MAX, "length of the axis", x->shape[axis], AXIS_MAX);
  NMP_REQUIRE(count >= 1, "count", count, 1);
  NMP_REQUIRE(count <= x->shape[axis], "count", count, x->shape[axis]);
  NMP_REQUIRE(y->exponent == 0, "exponent of the output", y->exponent, 0);
  for (int32_t i = 0; i < x->rank; i++) {
    const int32_t size = i == axis ? count : x->shape[i];
    NMP_REQUIRE(y->shape[i] == size, "dimension of the output", y->shape[i], size);
  }
  return NMP_FINE;
}

/* In one line of n elements from `first`, `step` apart: the index of the best one that comes after `past` in the order
 * of values and, where they are equal, of places; past < 0: of all. */
static int32_t best(const nmp_op *op, size_t first, size_t step, int32_t n, int32_t past) {
  const int32_t sign = op->params.arg_max.smallest ? -1 : 1, turn = op->params.arg_max.last ? -1 : 1;
  const int32_t limit = past < 0 ? 0 : sign * nmp_load(&op->in[0], first + (size_t)past * step);
  int32_t index = -1, most = 0;
  for (int32_t j = 0; j < n; j++) {
    const int32_t i = turn > 0 ? j : n - 1 - j, value = sign * nmp_load(&op->in[0], first + (size_t)i * step);
    const int32_t left = past < 0 || value < limit || (value == limit && (i - past) * turn > 0);
    if (left && (index < 0 || value > most)) {
      most = value;
      index = i;
    }
  }
  return index;
}

static void arg_max_run(const nmp_op *op) {
  const nmp_tensor *x = &op->in[0], *y = &op->out[0];
  const int32_t n = x->shape[op->params.arg_max.axis], count = op->params.arg_max.count;
  size_t step = 1;
  for (uint32_t i = (uint32_t)op->params.arg_max.axis + 1; i < x->rank; i++) {
    step *= (size_t)x->shape[i];
  }
  const size_t lines = y->size / (size_t)count;
  for (size_t line = 0; line < lines; line++) {
    const size_t group = line / step, at = line % step;
    const size_t first = group * step * (size_t)n + at, to = group * step * (size_t)count + at;
    for (int32_t k = 0, found = -1; k < count; k++) {
      found = best(op, first, step, n, found);
      nmp_store(y, to + (size_t)k * step, found);
    }
  }
}

const nmp_op_type nmp_arg_max_type = {.check = arg_max_check, .run = arg_max_run};
