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
  ptrdiff_t first = 0, from = 1, to = 1;
  int32_t length = 1, step = 1; /* of rows, where one axis is cut and nothing left out within */
  uint32_t cut = 0;
  nmp_block block;
  block.rank = y->rank;
  for (uint32_t i = y->rank; i-- > 0;) {
    if (y->shape[i] != x->shape[i] || p->steps[i] != 1) {
      cut += p->steps[i] == 1 || y->shape[i] == 1 ? 1 : 2;
      length = (int32_t)to * y->shape[i];
      step = (int32_t)from * x->shape[i];
    }
    block.shape[i] = y->shape[i];
    block.to[i] = to;
    block.from[i] = y->shape[i] > 1 ? from * p->steps[i] : 0;
    first += from * p->starts[i];
    to *= y->shape[i];
    from *= x->shape[i];
  }
  if (NMP_QUICK_ROWS && cut == 1) {
    nmp_copy_rows(op, y->data, nmp_at(x, (size_t)first), (int32_t)(y->size / (uint32_t)length), length, step, length);
  } else {
    nmp_copy_block(op, y->data, nmp_at(x, (size_t)first), &block);
  }
}

const nmp_op_type nmp_slice_type = {.check = slice_check, .run = slice_run};
