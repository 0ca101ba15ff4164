/* y[i] = x[start + step * i] along every axis. */
#include "ops/common/strided.h"

static nmp_rule slice_check(const nmp_op *op) {
  NMP_TRY(nmp_check_inputs(op, 1, 1, 1));
  const nmp_tensor *x = &op->in[0], *y = &op->out[0];
  const nmp_slice_params *p = &op->params.slice;
  NMP_TRY(nmp_check_same_grid(op, x));
  NMP_COMPARE(p->starts_count, ==, x->rank, "length of starts");
  NMP_COMPARE(p->steps_count, ==, x->rank, "length of steps");
  NMP_COMPARE(p->sizes_count, ==, x->rank, "length of sizes");
  NMP_COMPARE(y->rank, ==, x->rank, "rank of the output");
  for (uint32_t i = 0; i < x->rank; i++) {
    const int64_t start = p->starts[i], end = start + (int64_t)p->steps[i] * (y->shape[i] - 1);
    NMP_COMPARE(y->shape[i], ==, p->sizes[i], "dimension of the output");
    NMP_REQUIRE(p->steps[i] != 0, "step", 0, 1);
    NMP_REQUIRE(start >= 0 && start < x->shape[i], "start", start, x->shape[i] - 1);
    NMP_REQUIRE(end >= 0 && end < x->shape[i], "end", end, x->shape[i] - 1);
  }
  return NMP_FINE;
}

static void slice_run(const nmp_op *op) {
  const nmp_tensor *x = &op->in[0], *y = &op->out[0];
  const nmp_slice_params *p = &op->params.slice;
  ptrdiff_t strides[NMP_RANK_MAX], first = 0;
  nmp_block block;
  block.rank = y->rank;
  nmp_strides(x, strides);
  nmp_strides(y, block.to);
  for (uint32_t i = 0; i < y->rank; i++) {
    block.shape[i] = y->shape[i];
    block.from[i] = y->shape[i] > 1 ? strides[i] * p->steps[i] : 0;
    first += strides[i] * p->starts[i];
  }
  nmp_copy_block(op, y->data, nmp_at(x, (size_t)first), &block);
}

const nmp_op_type nmp_slice_type = {.check = slice_check, .run = slice_run};
