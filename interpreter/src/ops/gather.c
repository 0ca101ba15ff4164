/* y[..., i, ...] = x[..., index[i], ...] along an axis. */
#include <string.h>

#include "ops/common/tasks.h"

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

/* Bytes of what one index chooses. */
static size_t row_bytes(const nmp_op *op) {
  const nmp_tensor *x = &op->in[0];
  size_t row = nmp_bytes(x);
  for (int32_t i = op->params.gather.axis + 1; i < x->rank; i++) {
    row *= (size_t)x->shape[i];
  }
  return row;
}

static void run_rows(const nmp_op *op, const void *how, size_t first, size_t last) {
  const nmp_tensor *x = &op->in[0];
  const nmp_gather_params *p = &op->params.gather;
  const size_t row = row_bytes(op), group = row * (size_t)x->shape[p->axis];
  const uint8_t *from = (const uint8_t *)x->data + first / p->index_count * group;
  uint8_t *to = (uint8_t *)op->out[0].data + first * row;
  size_t i = first % p->index_count;
  (void)how;
  for (size_t left = last - first; left > 0; left--, to += row) {
    memcpy(to, from + row * (size_t)p->index[i], row);
    if (++i == p->index_count) {
      i = 0;
      from += group;
    }
  }
}

static void gather_run(const nmp_op *op) {
  const nmp_tensor *y = &op->out[0];
  const size_t bytes = y->size * nmp_bytes(y);
  nmp_run_tasks(op, bytes / row_bytes(op), bytes, run_rows, NULL);
}

const nmp_op_type nmp_gather_type = {.check = gather_check, .run = gather_run};
