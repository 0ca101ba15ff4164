#include "ops/common/pool.h"

nmp_pool nmp_pool_of(const nmp_op *op, nmp_axis v, nmp_axis h) {
  const int32_t *x = op->in[0].shape, *y = op->out[0].shape;
  nmp_pool pool = {.v = v, .h = h};
  pool.v.in = x[1];
  pool.v.out = y[1];
  pool.h.in = x[2];
  pool.h.out = y[2];
  return pool;
}

nmp_rule nmp_check_pool(const nmp_op *op, nmp_pool pool) {
  const nmp_tensor *x = &op->in[0], *y = &op->out[0];
  NMP_COMPARE(x->rank, ==, 4, "rank of the input");
  NMP_COMPARE(y->rank, ==, 4, "rank of the output");
  NMP_COMPARE(y->shape[0], ==, x->shape[0], "batch");
  NMP_COMPARE(y->shape[3], ==, x->shape[3], "channels");
  NMP_TRY(nmp_check_axis(&pool.v));
  NMP_TRY(nmp_check_axis(&pool.h));
  NMP_TRY(nmp_check_hits(&pool.v));
  return nmp_check_hits(&pool.h);
}

uint64_t nmp_pool_work(const nmp_op *op, int32_t kernel_h, int32_t kernel_w) {
  const int32_t *x = op->in[0].shape; /* padding costs nothing */
  const uint32_t rows = (uint32_t)(kernel_h < x[1] ? kernel_h : x[1]);
  const uint32_t columns = (uint32_t)(kernel_w < x[2] ? kernel_w : x[2]);
  return (uint64_t)op->out[0].size * rows * columns;
}

nmp_pixels nmp_pool_window(const nmp_op *op, const nmp_pool *pool, size_t line, size_t column) {
  const nmp_tensor *x = &op->in[0];
  const size_t channels = (size_t)x->shape[3], row = (size_t)pool->h.in * channels;
  const size_t height = (size_t)pool->v.out;
  const int32_t oy = (int32_t)(line % height), ox = (int32_t)column;
  int32_t top, bottom, left, right;
  nmp_clip(&pool->v, oy, &top, &bottom);
  nmp_clip(&pool->h, ox, &left, &right);
  const size_t image = line / height * (size_t)pool->v.in * row;
  const size_t first =
      image + (size_t)nmp_pixel(&pool->v, oy, top) * row + (size_t)nmp_pixel(&pool->h, ox, left) * channels;
  return (nmp_pixels){.x = nmp_at(x, first),
                      .rows = (size_t)(bottom - top),
                      .columns = (size_t)(right - left),
                      .row_stride = (size_t)pool->v.dilation * row,
                      .column_stride = (size_t)pool->h.dilation * channels};
}

static int is_whole(const nmp_axis *axis, int32_t position) {
  return nmp_pixel(axis, position, 0) >= 0 && nmp_pixel(axis, position, axis->kernel - 1) < axis->in;
}

void nmp_pool_next(const nmp_op *op, const nmp_pool *pool, size_t line, size_t column, nmp_pixels *window) {
  if (column == 0 || !is_whole(&pool->h, (int32_t)column) || !is_whole(&pool->h, (int32_t)column - 1)) {
    *window = nmp_pool_window(op, pool, line, column);
  } else {
    const size_t step = (size_t)pool->h.stride * (size_t)op->in[0].shape[3];
    window->x = (const uint8_t *)window->x + step * nmp_bytes(&op->in[0]);
  }
}
