/* The largest pixel of each window of x [N,H,W,C]; padding never wins. */
#include "ops/common/parts.h"
#include "ops/common/pool.h"

static nmp_pool decode(const nmp_op *op) {
  const nmp_max_pool_params *p = &op->params.max_pool;
  return nmp_pool_of(op, (nmp_axis){0, 0, p->kernel_h, p->stride_h, p->dilation_h, p->pad_top, p->pad_bottom},
                     (nmp_axis){0, 0, p->kernel_w, p->stride_w, p->dilation_w, p->pad_left, p->pad_right});
}

static nmp_rule check(const nmp_op *op) {
  NMP_TRY(nmp_check_inputs(op, 1, 1, 1));
  NMP_TRY(nmp_check_same_grid(op, &op->in[0]));
  return nmp_check_pool(op, decode(op));
}

static uint64_t work(const nmp_op *op) {
  const nmp_max_pool_params *p = &op->params.max_pool;
  return nmp_pool_work(op, p->kernel_h, p->kernel_w);
}

static void run_lines(const nmp_op *op, const void *how, size_t first, size_t last) {
  const nmp_pool *pool = how;
  const nmp_tensor *y = &op->out[0];
  const size_t channels = (size_t)y->shape[3], width = (size_t)y->shape[2];
  nmp_pixels window = {NULL, 0, 0, 0, 0};
  for (size_t line = first, at = first * width * channels; line < last; line++) {
    for (size_t column = 0; column < width; column++, at += channels) {
      nmp_pool_next(op, pool, line, column, &window);
      NMP_BY_1(NMP_IN_USE(op->kernels).max, NMP_WIDE(y->bits))(nmp_at(y, at), &window, channels);
    }
  }
}

static void run(const nmp_op *op) {
  const nmp_pool pool = decode(op);
  const int32_t *shape = op->out[0].shape;
  nmp_run_parts(op, (size_t)shape[0] * (size_t)shape[1], work(op), run_lines, &pool);
}

const nmp_op_type nmp_max_pool_type = {.check = check, .run = run, .work = work};
