/* The exact mean of each window of x [N,H,W,C], on the output's grid. */
#include "ops/common/pool.h"
#include "ops/common/tasks.h"

#define SPREAD 30      /* of |e_x - e_y| */
#define AREA_MAX 65536 /* pixels of a window, whose sum fits int32 */
#define FACTOR_BITS 31 /* of 1 / pixels */
#define TILE 64        /* channels whose sums are on the stack */

static nmp_pool decode(const nmp_op *op) {
  const nmp_average_pool_params *p = &op->params.average_pool;
  return nmp_pool_of(
      op,
      (nmp_axis){
          .kernel = p->kernel_h, .stride = p->stride_h, .dilation = 1, .before = p->pad_top, .after = p->pad_bottom},
      (nmp_axis){
          .kernel = p->kernel_w, .stride = p->stride_w, .dilation = 1, .before = p->pad_left, .after = p->pad_right});
}

static nmp_rule average_pool_check(const nmp_op *op) {
  const nmp_average_pool_params *p = &op->params.average_pool;
  NMP_TRY(nmp_check_inputs(op, 1, 1, 1));
  NMP_TRY(nmp_check_pool(op, decode(op)));
  const int64_t area = (int64_t)p->kernel_h * p->kernel_w;
  NMP_COMPARE(area, <=, AREA_MAX, "pixels of the kernel");
  const int spread = op->in[0].exponent - op->out[0].exponent;
  NMP_COMPARE(spread, >=, -SPREAD, "difference of exponents");
  NMP_COMPARE(spread, <=, SPREAD, "difference of exponents");
  return NMP_FINE;
}

static uint64_t average_pool_work(const nmp_op *op) {
  const nmp_average_pool_params *p = &op->params.average_pool;
  return nmp_pool_work(op, p->kernel_h, p->kernel_w);
}

static int64_t pixels_of(const nmp_op *op, const nmp_pixels *window) {
  const nmp_average_pool_params *p = &op->params.average_pool;
  return p->count_include_pad ? (int64_t)p->kernel_h * p->kernel_w : (int64_t)(window->rows * window->columns);
}

#if NMP_FIXED_CPU
static void average_pool_run(const nmp_op *op) {
  const nmp_pool pool = decode(op);
  const nmp_tensor *x = &op->in[0], *y = &op->out[0];
  const size_t channels = (size_t)y->shape[3], width = (size_t)y->shape[2];
  const int spread = x->exponent - y->exponent;
  const int64_t up = (int64_t)1 << (spread > 0 ? spread : 0), down = (int64_t)1 << (spread < 0 ? -spread : 0);
  int32_t sums[TILE];
  for (size_t at = 0; at < y->size; at += channels) {
    nmp_pixels window = nmp_pool_window(op, &pool, at / channels / width, at / channels % width);
    const int64_t pixels = pixels_of(op, &window);
    for (size_t first = 0, n; first < channels; first += n) {
      n = channels - first < TILE ? channels - first : TILE;
      NMP_BY_1(NMP_IN_USE(op->kernels).sum, NMP_WIDE(x->bits))(sums, &window, n);
      for (size_t c = 0; c < n; c++) {
        nmp_store(y, at + first + c, nmp_div(sums[c] * up, pixels * down));
      }
      window.x = (const uint8_t *)window.x + n * nmp_bytes(x);
    }
  }
}
#else
/* The mean is rsh(sum * factor, shift); 0: only a division is exact. An odd number of pixels has no ties: the quotient
 * is 1 / (2 * pixels) or more away from half a unit, further than the factor's error moves it.
 */
static int32_t factor_of(const nmp_op *op, int64_t pixels, int *shift) {
  const nmp_tensor *x = &op->in[0];
  const int spread = x->exponent - op->out[0].exponent;
  if (pixels % 2 == 1 && spread >= 0 && pixels > 1) {
    *shift = FACTOR_BITS - spread;
    const int64_t error = pixels * pixels << (x->bits - 1);
    return error < (int64_t)1 << *shift ? (int32_t)((((int64_t)1 << FACTOR_BITS) + pixels / 2) / pixels) : 0;
  }
  *shift = -spread;
  for (; pixels % 2 == 0; pixels /= 2) {
    ++*shift;
  }
  return pixels == 1 && *shift >= 0;
}
/* n channels of an output pixel. */
static void store(const nmp_op *op, size_t at, const int32_t *sums, size_t n, int64_t pixels) {
  const nmp_tensor *y = &op->out[0];
  const int spread = op->in[0].exponent - y->exponent;
  const int64_t up = (int64_t)1 << (spread > 0 ? spread : 0), down = (int64_t)1 << (spread < 0 ? -spread : 0);
  int shift;
  const int32_t factor = factor_of(op, pixels, &shift);
  if (factor > 0) {
    NMP_BY_1(NMP_IN_USE(op->kernels).resize_v, NMP_WIDE(y->bits))
    (nmp_at(y, at), &sums, &factor, 1, n, shift, y->lo, y->hi);
    return;
  }
  for (size_t c = 0; c < n; c++) {
    nmp_store(y, at + c, nmp_div(sums[c] * up, pixels * down));
  }
}

/* Parts of a line's channels, so that several threads have something to do. */
static size_t tiles_of(const nmp_op *op) {
  return ((size_t)op->out[0].shape[3] + TILE - 1) / TILE;
}

/* Units are the tiles of a line, line by line. */
static void run_tiles(const nmp_op *op, const void *how, size_t first, size_t last) {
  const nmp_tensor *x = &op->in[0], *y = &op->out[0];
  const nmp_pool *pool = how;
  const size_t channels = (size_t)y->shape[3], width = (size_t)y->shape[2], tiles = tiles_of(op);
  nmp_pixels window = {.x = NULL};
  int32_t sums[TILE];
  for (size_t unit = first; unit < last; unit++) {
    const size_t line = unit / tiles, c = unit % tiles * TILE, n = channels - c < TILE ? channels - c : TILE;
    for (size_t column = 0; column < width; column++) {
      nmp_pool_next(op, pool, line, column, &window);
      nmp_pixels tile = window;
      tile.x = (const uint8_t *)window.x + c * nmp_bytes(x);
      NMP_BY_1(NMP_IN_USE(op->kernels).sum, NMP_WIDE(x->bits))(sums, &tile, n);
      store(op, (line * width + column) * channels + c, sums, n, pixels_of(op, &window));
    }
  }
}

static void average_pool_run(const nmp_op *op) {
  const nmp_pool pool = decode(op);
  const nmp_tensor *y = &op->out[0];
  const size_t lines = (size_t)y->shape[0] * (size_t)y->shape[1];
  nmp_run_tasks(op, lines * tiles_of(op), average_pool_work(op) * nmp_bytes(&op->in[0]), run_tiles, &pool);
}
#endif

const nmp_op_type nmp_average_pool_type = {
    .check = average_pool_check, .run = average_pool_run, .work = average_pool_work};
