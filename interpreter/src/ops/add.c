/* y = sat(rsh(a * 2^(e_a - m) + b * 2^(e_b - m), e_y - m)), m = min(e_a, e_b); numpy broadcasting. */
#include "broadcast.h"

#define SPREAD 30 /* of |e_a - e_b| */

static int finest(const nmp_op *op) {
  return op->in[0].exponent < op->in[1].exponent ? op->in[0].exponent : op->in[1].exponent;
}

static nmp_rule check(const nmp_op *op) {
  NMP_TRY(nmp_check_broadcast(op));
  const int spread = op->in[0].exponent + op->in[1].exponent - 2 * finest(op);
  NMP_REQUIRE(spread <= SPREAD, "difference of exponents", spread, SPREAD);
  return nmp_check_shift(op->out[0].exponent - finest(op));
}

static void run(const nmp_op *op) {
  const nmp_tensor *a = &op->in[0], *b = &op->in[1], *y = &op->out[0];
  const int m = finest(op);
  nmp_binary how = {0, 0, a->exponent - m, b->exponent - m, y->exponent - m, y->lo, y->hi};
  nmp_broadcast(op, op->kernels->add[NMP_WIDE(a->bits)][NMP_WIDE(b->bits)][NMP_WIDE(y->bits)], &how);
}

const nmp_op_type nmp_add_type = {check, NULL, run, 1, NULL};
