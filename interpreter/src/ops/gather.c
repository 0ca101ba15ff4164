/* y[..., i, ...] = x[..., index[i], ...] along an axis. */
#include <string.h>

#include "ops/common/check.h"

static nmp_rule gather_check(const nmp_op *op) {
  NMP_TRY(nmp_check_inputs(op, 1, 1, 1));
  const nmp_tensor *x = &op->in[0], *y = &op->out[0];
  const nmp_gather_params *p = &op->params.gather;
  NMP_TRY(nmp_check_same_grid(op, x));
  NMP_REQUIRE(y->rank == x->rank, "rank of the output", y->rank, x->rank);
  NMP_REQUIRE(p->axis >= 0, "axis", p->axis, 0);
  NMP_REQUIRE(p->axis < x->rank, "axis", p->axis, x->rank - 1);
  for (int32_t i = 0; i < x->rank; i++) {
    const int64_t size = i == p->axis ? (int64_t)p->index_count : x->shape[i];
    NMP_REQUIRE(y->shape[i] == size, "dimension of the output", y->shape[i], size);
  }
  for (uint32_t i = 0; i < p->index_count; i++) {
    NMP_REQUIRE(p->index[i] >= 0, "index", p->index[i], 0);
    NMP_REQUIRE(p->index[i] < x->shape[p->axis], "index", p->index[i], x->shape[p->axis] - 1);
  }
  return NMP_FINE;
}

static void gather_run(const nmp_op *op) {
  const nmp_tensor *x = &op->in[0];
  const nmp_gather_params *p = &op->params.gather;
  size_t row = nmp_bytes(x), outer = 1;
  for (int32_t i = 0; i < x->rank; i++) {
    if (i < p->axis) {
      outer *= (size_t)x->shape[i];
    } else if (i > p->axis) {
      row *= (size_t)x->shape[i];
    }
  }
  const uint8_t *from = x->data;
  uint8_t *to = op->out[0].data;
  for (size_t o = 0; o < outer; o++, from += row * (size_t)x->shape[p->axis]) {
    for (uint32_t i = 0; i < p->index_count; i++, to += row) {
      memcpy(to, from + row * (size_t)p->index[i], row);
    }
  }
}

const nmp_op_type nmp_gather_type = {.check = gather_check, .run = gather_run};
