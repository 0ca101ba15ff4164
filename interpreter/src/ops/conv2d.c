/* x [N,H,W,C], w [O,KH,KW,I], b [O], optional pad [C]; I = C / groups. */
#include "ops/common/overlap.h"
#include "ops/common/weighted.h"
#include "ops/common/window.h"

void nmp_conv2d_conv(const nmp_op *op, nmp_conv *c) {
  const nmp_conv2d_params *p = &op->params.conv2d;
  const int32_t *x = op->in[0].shape, *w = op->in[1].shape, *y = op->out[0].shape;
  nmp_conv_fill(c, op);
  c->v = (nmp_axis){.in = x[1],
                    .out = y[1],
                    .kernel = w[1],
                    .stride = p->stride_h,
                    .dilation = p->dilation_h,
                    .before = p->pad_top,
                    .after = p->pad_bottom};
  c->h = (nmp_axis){.in = x[2],
                    .out = y[2],
                    .kernel = w[2],
                    .stride = p->stride_w,
                    .dilation = p->dilation_w,
                    .before = p->pad_left,
                    .after = p->pad_right};
  c->images = (uint32_t)x[0];
  c->groups = (uint32_t)p->groups;
}

nmp_rule nmp_conv2d_check(const nmp_op *op) {
  NMP_TRY(nmp_check_inputs(op, 3, 4, 1));
  const nmp_tensor *x = &op->in[0], *w = &op->in[1], *y = &op->out[0];
  const int32_t groups = op->params.conv2d.groups;
  NMP_COMPARE(x->rank, ==, 4, "rank of the input");
  NMP_COMPARE(w->rank, ==, 4, "rank of the weights");
  NMP_COMPARE(y->rank, ==, 4, "rank of the output");
  NMP_COMPARE(groups, >=, 1, "groups");
  NMP_REQUIRE((int64_t)groups * w->shape[3] == x->shape[3], "input channels", x->shape[3], w->shape[3]);
  NMP_COMPARE(w->shape[0] % groups, ==, 0, "output channels of a group");
  NMP_COMPARE(y->shape[0], ==, x->shape[0], "batch");
  NMP_COMPARE(y->shape[3], ==, w->shape[0], "output channels");
  nmp_conv c;
  nmp_conv2d_conv(op, &c);
  NMP_TRY(nmp_check_axis(&c.v));
  NMP_TRY(nmp_check_axis(&c.h));
  if (op->input_count == 4) {
    NMP_TRY(nmp_check_vector(&op->in[3], x->shape[3], x->bits, x->exponent));
  }
  NMP_REQUIRE_BUILT(nmp_conv_is_direct(&c) == nmp_conv_is_product(&c), "a convolution that is no product of pixels", 0,
                    0);
  NMP_TRY(nmp_check_weights(op, w->shape[0], c.k));
  return nmp_conv_check(&c);
}

static int conv2d_overlap(const nmp_op *op) {
  nmp_conv c;
  nmp_conv2d_conv(op, &c);
  return nmp_overlap_legal(&c);
}

uint64_t nmp_conv2d_work(const nmp_op *op) {
  return (uint64_t)op->out[0].size * (op->in[1].size / (uint32_t)op->in[1].shape[0]);
}

const nmp_op_type nmp_conv2d_type = {.check = nmp_conv2d_check,
                                     .scratch = nmp_conv_scratch,
                                     .run = nmp_conv_run,
                                     .conv = nmp_conv2d_conv,
                                     .overlap = NMP_CONV_OVERLAP ? conv2d_overlap : NULL,
                                     .work = nmp_conv2d_work};
