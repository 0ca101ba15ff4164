/* x [..., K], w [O, K], b [O] -> [..., O] */
#include "matmul.h"

static nmp_rule check(const nmp_op *op) {
  NMP_TRY(nmp_check_inputs(op, 3, 3, 1));
  const nmp_tensor *x = &op->in[0], *w = &op->in[1], *y = &op->out[0];
  NMP_REQUIRE(w->rank == 2, "rank of the weights", w->rank, 2);
  NMP_REQUIRE(x->rank >= 1, "rank of the input", x->rank, 1);
  NMP_REQUIRE(x->rank == y->rank, "rank of the output", y->rank, x->rank);
  NMP_REQUIRE(x->shape[x->rank - 1] == w->shape[1], "columns of the weights", w->shape[1], x->shape[x->rank - 1]);
  NMP_REQUIRE(y->shape[y->rank - 1] == w->shape[0], "output channels", y->shape[y->rank - 1], w->shape[0]);
  for (uint32_t i = 0; i + 1 < x->rank; i++) {
    NMP_REQUIRE(x->shape[i] == y->shape[i], "dimension of the output", y->shape[i], x->shape[i]);
  }
  return nmp_check_weights(op, w->shape[0], w->shape[1]);
}

static uint64_t work(const nmp_op *op) {
  return (uint64_t)op->out[0].size * (uint32_t)op->in[1].shape[1];
}

static void run(const nmp_op *op) {
  const nmp_tensor *x = &op->in[0], *y = &op->out[0];
  const size_t out = (size_t)op->in[1].shape[0], k = (size_t)op->in[1].shape[1], rows = x->size / k;
  for (size_t row = 0; row < rows; row += NMP_TILE_ROWS) {
    const size_t n = rows - row < NMP_TILE_ROWS ? rows - row : NMP_TILE_ROWS;
    nmp_matmul(op, nmp_at(x, row * k), k, n, k, 0, out, nmp_at(y, row * out), out);
  }
}

const nmp_op_type nmp_fully_connected_type = {check, NULL, run, 0, work};
