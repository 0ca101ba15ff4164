/* x [..., K], w [O, K], b [O] -> [..., O]: a 1x1 convolution over a row of pixels */
#include "ops/common/weighted.h"

static void fully_connected_conv(const nmp_op *op, nmp_conv *c) {
  nmp_conv_fill(c, op);
  const int32_t pixels = op->in[0].size == c->k ? 1 : (int32_t)(op->in[0].size / c->k);
  c->v = nmp_axis_of_pixels(1);
  c->h = nmp_axis_of_pixels(pixels);
  c->images = 1;
  c->groups = 1;
}

static nmp_rule fully_connected_check(const nmp_op *op) {
  NMP_TRY(nmp_check_inputs(op, 3, 3, 1));
  const nmp_tensor *x = &op->in[0], *w = &op->in[1], *y = &op->out[0];
  NMP_COMPARE(w->rank, ==, 2, "rank of the weights");
  NMP_COMPARE(x->rank, >=, 1, "rank of the input");
  NMP_COMPARE(y->rank, ==, x->rank, "rank of the output");
  NMP_COMPARE(w->shape[1], ==, x->shape[x->rank - 1], "columns of the weights");
  NMP_COMPARE(y->shape[y->rank - 1], ==, w->shape[0], "output channels");
  for (uint32_t i = 0; i + 1 < x->rank; i++) {
    NMP_COMPARE(y->shape[i], ==, x->shape[i], "dimension of the output");
  }
  NMP_TRY(nmp_check_weights(op, w->shape[0], w->shape[1]));
  nmp_conv c;
  fully_connected_conv(op, &c);
  return nmp_conv_check(&c);
}

static uint64_t fully_connected_work(const nmp_op *op) {
  return (uint64_t)op->out[0].size * (uint32_t)op->in[1].shape[1];
}

const nmp_op_type nmp_fully_connected_type = {.check = fully_connected_check,
                                              .scratch = nmp_conv_scratch,
                                              .run = nmp_conv_run,
                                              .conv = fully_connected_conv,
                                              .work = fully_connected_work};
