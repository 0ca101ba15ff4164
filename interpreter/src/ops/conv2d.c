/* x [N,H,W,C], w [O,KH,KW,I], b [O], optional pad [C]; I = C / groups. */
#include "ops/common/overlap.h"
#include "ops/common/window.h"

nmp_conv nmp_conv_of(const nmp_op *op) {
  const nmp_conv2d_params *p = &op->params.conv2d;
  const int32_t *x = op->in[0].shape, *w = op->in[1].shape, *y = op->out[0].shape;
  nmp_conv c;
  nmp_conv_fill(&c, op);
  c.v = (nmp_axis){x[1], y[1], w[1], p->stride_h, p->dilation_h, p->pad_top, p->pad_bottom};
  c.h = (nmp_axis){x[2], y[2], w[2], p->stride_w, p->dilation_w, p->pad_left, p->pad_right};
  c.images = (uint32_t)x[0];
  c.groups = (uint32_t)p->groups;
  return c;
}

static nmp_rule check(const nmp_op *op) {
  NMP_TRY(nmp_check_inputs(op, 3, 4, 1));
  const nmp_tensor *x = &op->in[0], *w = &op->in[1], *y = &op->out[0];
  const int32_t groups = op->params.conv2d.groups;
  NMP_REQUIRE(x->rank == 4, "rank of the input", x->rank, 4);
  NMP_REQUIRE(w->rank == 4, "rank of the weights", w->rank, 4);
  NMP_REQUIRE(y->rank == 4, "rank of the output", y->rank, 4);
  NMP_REQUIRE(groups >= 1, "groups", groups, 1);
  NMP_REQUIRE((int64_t)groups * w->shape[3] == x->shape[3], "input channels", x->shape[3], w->shape[3]);
  NMP_REQUIRE(w->shape[0] % groups == 0, "output channels of a group", w->shape[0] % groups, 0);
  NMP_REQUIRE(y->shape[0] == x->shape[0], "batch", y->shape[0], x->shape[0]);
  NMP_REQUIRE(y->shape[3] == w->shape[0], "output channels", y->shape[3], w->shape[0]);
  const nmp_conv c = nmp_conv_of(op);
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

static int overlap(const nmp_op *op, int64_t at) {
  const nmp_conv c = nmp_conv_of(op);
  return nmp_overlap_legal(&c, at);
}

/* The result shares bytes with the input. */
static int overlaps(const nmp_op *op) {
  const nmp_tensor *x = &op->in[0], *y = &op->out[0];
  return NMP_CONV_OVERLAP && x->offset < y->offset + y->size * nmp_bytes(y) &&
         y->offset < x->offset + x->size * nmp_bytes(x);
}

static size_t scratch(const nmp_op *op) {
  const nmp_conv c = nmp_conv_of(op);
  return overlaps(op) ? nmp_overlap_scratch(op, &c) : nmp_conv_scratch(op, &c);
}

int nmp_conv_is_prepared(const nmp_op *op) {
  return NMP_PREPARED && !overlaps(op);
}

static size_t packed(const nmp_op *op) {
  const nmp_conv c = nmp_conv_of(op);
  return nmp_conv_is_prepared(op) ? nmp_conv_prepared(&c) : nmp_conv_packed(&c);
}

static void pack(const nmp_op *op, void *to) {
  const nmp_conv c = nmp_conv_of(op);
  if (nmp_conv_is_prepared(op)) {
    nmp_conv_prepare(op, &c, to);
  } else {
    nmp_conv_pack(&c, to);
  }
}

static uint64_t work(const nmp_op *op) {
  return (uint64_t)op->out[0].size * (op->in[1].size / (uint32_t)op->in[1].shape[0]);
}

static void run(const nmp_op *op) {
  if (nmp_conv_is_prepared(op)) {
    nmp_conv_run_prepared(op);
    return;
  }
  const nmp_conv c = nmp_conv_of(op);
  if (overlaps(op)) {
    nmp_overlap_run(op, &c);
  } else {
    nmp_conv_run(op, &c);
  }
}

const nmp_op_type nmp_conv2d_type = {.check = check,
                                     .scratch = scratch,
                                     .run = run,
                                     .overlap = NMP_CONV_OVERLAP ? overlap : NULL,
                                     .work = work,
                                     .packed = NMP_PACKED_WEIGHTS ? packed : NULL,
                                     .pack = NMP_PACKED_WEIGHTS ? pack : NULL};
