/* r [N,OH,OW,O], then the inputs of a conv2d: y = sat(rsh(sum x*w + r * 2^s, s) + b). y may lie on r. */
#include "ops/common/added.h"

#define SHIFT_MAX 30

static nmp_rule conv_add_check(const nmp_op *op) {
  NMP_TRY(nmp_conv2d_check(op));
  const nmp_tensor *r = &op->added, *x = &op->in[0], *w = &op->in[1], *y = &op->out[0];
  const int32_t groups = op->params.conv_add.groups;
  NMP_TRY(nmp_check_same_shape(r, y));
  NMP_TRY(nmp_check_same_grid(op, r));
  NMP_REQUIRE(!(NMP_WIDE(x->bits) | NMP_WIDE_WEIGHT(w->bits) | NMP_WIDE(y->bits)), "bits of a sum", 16, 8);
  NMP_REQUIRE(groups != x->shape[3] || groups != w->shape[0], "groups", groups, groups - 1);
  for (uint32_t i = 0; i < w->exponent_count; i++) {
    const int shift = y->exponent - x->exponent - w->exponents[i];
    NMP_REQUIRE((unsigned)shift <= SHIFT_MAX, "shift", shift, SHIFT_MAX);
  }
  return NMP_FINE;
}

/* Exactly on r, of which an element is read before it is written. */
static int64_t conv_add_place(const nmp_op *op, uint32_t k) {
  (void)op;
  return k == 0 ? 0 : -1;
}

const nmp_op_type nmp_conv_add_type = {.check = conv_add_check,
                                       .scratch = NMP_FIXED_CPU ? nmp_conv_scratch : nmp_added_scratch,
                                       .run = nmp_added_run,
                                       .conv = NMP_FIXED_CPU ? nmp_conv2d_conv : nmp_added_conv,
                                       .place = conv_add_place,
                                       .work = nmp_conv2d_work,
                                       .adds = 1};
