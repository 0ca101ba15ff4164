/* The largest pixel of each window of x [N,H,W,C]; padding never wins. */
#include "ops/common/pool.h"
#include "ops/common/tasks.h"

static nmp_pool decode(const nmp_op *op) {
  const nmp_max_pool_params *p = &op->params.max_pool;
  return nmp_pool_of(op,
                     (nmp_axis){.kernel = p->kernel_h,
                                .stride = p->stride_h,
                                .dilation = p->dilation_h,
                                .before = p->pad_top,
                                .after = p->pad_bottom},
                     (nmp_axis){.kernel = p->kernel_w,
                                .stride = p->stride_w,
                                .dilation = p->dilation_w,
                                .before = p->pad_left,
                                .after = p->pad_right});
}

static nmp_rule max_pool_check(const nmp_op *op) {
  NMP_TRY(nmp_check_inputs(op, 1, 1, 1));
  NMP_TRY(nmp_check_same_grid(op, &op->in[0]));
  return nmp_check_pool(op, decode(op));
}

static uint64_t max_pool_work(const nmp_op *op) {
  const nmp_max_pool_params *p = &op->params.max_pool;
  return nmp_pool_work(op, p->kernel_h, p->kernel_w);
}

static void run_lines(const nmp_op *op, const void *how, size_t first, size_t last) {
  const nmp_pool *pool = how;
  const nmp_tensor *y = &op->out[0];
  const size_t channels = (size_t)y->shape[3], width = (size_t)y->shape[2];
  nmp_pixels window = {.x = NULL};
  for (size_t line = first, at = first * width * channels; line < last; line++) {
    for (size_t column = 0; column < width; column++, at += channels) {
      nmp_pool_next(op, pool, line, column, &window);
      NMP_BY_1(NMP_IN_USE(op->kernels).max, NMP_WIDE(y->bits))(nmp_at(y, at), &window, channels);
    }
  }
}

static void max_pool_run(const nmp_op *op) {
  const nmp_pool pool = decode(op);
  const int32_t *shape = op->out[0].shape;
  nmp_run_tasks(op, (size_t)shape[0] * (size_t)shape[1], max_pool_work(op), run_lines, &pool);
}

const nmp_op_type nmp_max_pool_type = {.check = max_pool_check, .run = max_pool_run, .work = max_pool_work};
