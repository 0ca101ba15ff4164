/* The index of the largest or smallest element along an axis, the first or the last of equal ones. */
#include "ops/common/check.h"

#define AXIS_MAX 32768

static nmp_rule arg_max_check(const nmp_op *op) {
  NMP_TRY(nmp_check_inputs(op, 1, 1, 1));
  const nmp_tensor *x = &op->in[0], *y = &op->out[0];
  const int32_t axis = op->params.arg_max.axis;
  NMP_REQUIRE(y->rank == x->rank, "rank of the output", y->rank, x->rank);
  NMP_REQUIRE(axis >= 0, "axis", axis, 0);
  NMP_REQUIRE(axis < x->rank, "axis", axis, x->rank - 1);
  NMP_REQUIRE(x->shape[axis] <= AXIS_MAX, "length of the axis", x->shape[axis], AXIS_MAX);
  NMP_REQUIRE(y->exponent == 0, "exponent of the output", y->exponent, 0);
  for (int32_t i = 0; i < x->rank; i++) {
    const int32_t size = i == axis ? 1 : x->shape[i];
    NMP_REQUIRE(y->shape[i] == size, "dimension of the output", y->shape[i], size);
  }
  return NMP_FINE;
}

/* The index in one line of n elements from `first`, `step` apart. */
static int32_t best(const nmp_op *op, size_t first, size_t step, int32_t n) {
  const int32_t sign = op->params.arg_max.smallest ? -1 : 1, ties = op->params.arg_max.last ? 1 : 0;
  int32_t index = 0, most = sign * nmp_load(&op->in[0], first);
  for (int32_t i = 1; i < n; i++) {
    const int32_t value = sign * nmp_load(&op->in[0], first + (size_t)i * step);
    if (value >= most + 1 - ties) {
      most = value;
      index = i;
    }
  }
  return index;
}

static void arg_max_run(const nmp_op *op) {
  const nmp_tensor *x = &op->in[0], *y = &op->out[0];
  const int32_t n = x->shape[op->params.arg_max.axis];
  size_t step = 1;
  for (uint32_t i = (uint32_t)op->params.arg_max.axis + 1; i < x->rank; i++) {
    step *= (size_t)x->shape[i];
  }
  for (size_t at = 0; at < y->size; at++) {
    const size_t first = at / step * step * (size_t)n + at % step;
    nmp_store(y, at, best(op, first, step, n));
  }
}

const nmp_op_type nmp_arg_max_type = {.check = arg_max_check, .run = arg_max_run};
