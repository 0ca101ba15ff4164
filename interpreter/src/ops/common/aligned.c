#include "ops/common/aligned.h"

#define SPREAD 30 /* of |e_a - e_b| */

static int finest(const nmp_op *op) {
  return op->in[0].exponent < op->in[1].exponent ? op->in[0].exponent : op->in[1].exponent;
}

nmp_rule nmp_check_spread(const nmp_op *op) {
  NMP_TRY(nmp_check_broadcast(op));
  const int spread = op->in[0].exponent + op->in[1].exponent - 2 * finest(op);
  NMP_COMPARE(spread, <=, SPREAD, "difference of exponents");
  return NMP_FINE;
}

nmp_rule nmp_check_aligned(const nmp_op *op) {
  NMP_TRY(nmp_check_spread(op));
  return nmp_check_shift(op->out[0].exponent - finest(op));
}

void nmp_run_rows(const nmp_op *op, nmp_add_fn *kernel, int shift) {
  const int m = finest(op);
  nmp_binary how = {.a_step = 1, /* all are given: else a call clears it first */
                    .b_step = 1,
                    .a_shift = op->in[0].exponent - m,
                    .b_shift = op->in[1].exponent - m,
                    .shift = shift,
                    .lo = op->out[0].lo,
                    .hi = op->out[0].hi,
                    .down = 0};
  nmp_broadcast(op, kernel, &how);
}

void nmp_run_aligned(const nmp_op *op, nmp_add_fn *kernel) {
  nmp_run_rows(op, kernel, op->out[0].exponent - finest(op));
}
