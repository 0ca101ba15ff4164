/* y = sat(rsh(a * b, e_y - e_a - e_b)); numpy broadcasting. */
#include "ops/common/broadcast.h"

static int shift(const nmp_op *op) {
  return op->out[0].exponent - op->in[0].exponent - op->in[1].exponent;
}

static nmp_rule mul_check(const nmp_op *op) {
  NMP_TRY(nmp_check_broadcast(op));
  return nmp_check_shift(shift(op));
}

static void mul_run(const nmp_op *op) {
  const nmp_tensor *a = &op->in[0], *b = &op->in[1], *y = &op->out[0];
  nmp_binary how = {.a_step = 1, /* all are given: else a call clears it first */
                    .b_step = 1,
                    .a_shift = 0,
                    .b_shift = 0,
                    .shift = shift(op),
                    .lo = y->lo,
                    .hi = y->hi,
                    .down = 0};
  nmp_broadcast(op, NMP_BY_3(NMP_IN_USE(op->kernels).mul, NMP_WIDE(a->bits), NMP_WIDE(b->bits), NMP_WIDE(y->bits)),
                &how);
}

const nmp_op_type nmp_mul_type = {.check = mul_check, .run = mul_run, .in_place = 1, .by_rows = 1};
