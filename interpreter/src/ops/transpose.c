/* The output's axis i is the input's axis perm[i]. */
#include "ops/common/strided.h"

static nmp_rule transpose_check(const nmp_op *op) {
  NMP_TRY(nmp_check_inputs(op, 1, 1, 1));
  const nmp_tensor *x = &op->in[0], *y = &op->out[0];
  const nmp_transpose_params *p = &op->params.transpose;
  uint32_t seen = 0;
  NMP_TRY(nmp_check_same_grid(op, x));
  NMP_COMPARE(p->perm_count, ==, x->rank, "length of perm");
  NMP_COMPARE(y->rank, ==, x->rank, "rank of the output");
  for (uint32_t i = 0; i < x->rank; i++) {
    const int32_t axis = p->perm[i];
    NMP_COMPARE(axis, >=, 0, "axis in perm");
    NMP_REQUIRE(axis < x->rank, "axis in perm", axis, x->rank - 1);
    NMP_REQUIRE(!(seen >> axis & 1), "axis twice in perm", axis, 1);
    NMP_COMPARE(y->shape[i], ==, x->shape[axis], "dimension of the output");
    seen |= 1u << axis;
  }
  return NMP_FINE;
}

static void transpose_run(const nmp_op *op) {
  const nmp_tensor *x = &op->in[0], *y = &op->out[0];
  ptrdiff_t strides[NMP_RANK_MAX];
  nmp_block block;
  block.rank = y->rank;
  nmp_strides(x, strides);
  nmp_strides(y, block.to);
  for (uint32_t i = 0; i < y->rank; i++) {
    block.shape[i] = y->shape[i];
    block.from[i] = strides[op->params.transpose.perm[i]];
  }
  nmp_copy_block(op, y->data, x->data, &block);
}

const nmp_op_type nmp_transpose_type = {.check = transpose_check, .run = transpose_run};
