/* int8: y = t[x + 128], a table of y's type. int16: i = (x + 32768) >> 7, f = (x + 32768) & 127,
 * y = sat(rsh(t[i] * 128 + (t[i + 1] - t[i]) * f, 15)), a table of int32 with 8 bits below y's grid.
 */
#include "check.h"

#define FRACTION 8

static nmp_rule check(const nmp_op *op) {
  NMP_TRY(nmp_check_inputs(op, 2, 2, 1));
  const nmp_tensor *x = &op->in[0], *y = &op->out[0];
  NMP_TRY(nmp_check_same_shape(x, y));
  return x->bits == 8 ? nmp_check_vector(&op->in[1], 256, y->bits, y->exponent)
                      : nmp_check_vector(&op->in[1], 513, 32, y->exponent - FRACTION);
}

static void run(const nmp_op *op) {
  const nmp_tensor *x = &op->in[0], *y = &op->out[0];
  op->kernels->lookup[NMP_WIDE(x->bits)][NMP_WIDE(y->bits)](y->data, x->data, op->in[1].data, x->size, y->lo, y->hi);
}

const nmp_op_type nmp_lookup_type = {check, NULL, run, 1, NULL};
