/* y = sat(rsh(x, e_y - e_x)) */
#include "ops/common/tasks.h"

static nmp_rule requantize_check(const nmp_op *op) {
  NMP_TRY(nmp_check_inputs(op, 1, 1, 1));
  NMP_TRY(nmp_check_same_shape(&op->in[0], &op->out[0]));
  return nmp_check_shift(op->out[0].exponent - op->in[0].exponent);
}

static void run_elements(const nmp_op *op, const void *how, size_t first, size_t last) {
  const nmp_tensor *x = &op->in[0], *y = &op->out[0];
  (void)how;
  NMP_BY_2(NMP_IN_USE(op->kernels).requantize, NMP_WIDE(x->bits), NMP_WIDE(y->bits))
  (nmp_at(y, first), nmp_at(x, first), last - first, y->exponent - x->exponent, y->lo, y->hi);
}

static void requantize_run(const nmp_op *op) {
  nmp_run_tasks(op, op->out[0].size, op->out[0].size, run_elements, NULL);
}

const nmp_op_type nmp_requantize_type = {.check = requantize_check, .run = requantize_run, .in_place = 1, .by_rows = 1};
