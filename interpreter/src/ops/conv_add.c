/* r [N,OH,OW,O], then the inputs of a conv2d: y = sat(rsh(sum x*w + r * 2^k, s) + b), k = e_r - e_x - e_w. y may lie on
 * r.
 */
#include "ops/common/added.h"

#define SPREAD 30 /* of e_r - e_x - e_w */

extern const nmp_op_type nmp_conv2d_type;

static void conv_add_conv(const nmp_op *op, nmp_conv *c) {
  const nmp_op conv = nmp_added_to(op);
  nmp_conv2d_type.conv(&conv, c);
  nmp_added_fill(c, op);
}

static nmp_rule conv_add_check(const nmp_op *op) {
  NMP_TRY(nmp_check_inputs(op, 4, 5, 2));
  const nmp_op conv = nmp_added_to(op);
  NMP_TRY(nmp_conv2d_type.check(&conv));
  const nmp_tensor *r = &op->in[0], *w = &op->in[2];
  NMP_TRY(nmp_check_same_shape(r, &op->out[0]));
  for (uint32_t i = 0; i < w->exponent_count; i++) {
    const int k = r->exponent - op->in[1].exponent - w->exponents[i];
    NMP_REQUIRE(k >= 0, "shift of the sum's other operand", k, 0);
    NMP_REQUIRE(k <= SPREAD, "shift of the sum's other operand", k, SPREAD);
  }
  return nmp_added_check(op);
}

/* Exactly on r, of which an element is read before it is written. */
static int64_t conv_add_place(const nmp_op *op, uint32_t k) {
  return k == 0 && op->in[0].bits == op->out[0].bits ? 0 : -1;
}

static uint64_t conv_add_work(const nmp_op *op) {
  return (uint64_t)op->out[0].size * (op->in[2].size / (uint32_t)op->in[2].shape[0]);
}

const nmp_op_type nmp_conv_add_type = {.check = conv_add_check,
                                       .scratch = nmp_added_scratch,
                                       .run = nmp_added_run,
                                       .conv = conv_add_conv,
                                       .place = conv_add_place,
                                       .work = conv_add_work};
