/* The exact mean of each window of x [N,H,W,C], on the output's grid. */
#include "pool.h"

#define SPREAD 30      /* of |e_x - e_y| */
#define AREA_MAX 65536 /* pixels of a window, whose sum fits int32 */
#define TILE 64        /* channels whose sums are on the stack */

static nmp_pool decode(const nmp_op *op) {
  const nmp_average_pool_params *p = &op->params.average_pool;
  return nmp_pool_of(op, (nmp_axis){0, 0, p->kernel_h, p->stride_h, 1, p->pad_top, p->pad_bottom},
                     (nmp_axis){0, 0, p->kernel_w, p->stride_w, 1, p->pad_left, p->pad_right});
}

static nmp_rule check(const nmp_op *op) {
  const nmp_average_pool_params *p = &op->params.average_pool;
  NMP_TRY(nmp_check_inputs(op, 1, 1, 1));
  NMP_TRY(nmp_check_pool(op, decode(op)));
  const int64_t area = (int64_t)p->kernel_h * p->kernel_w;
  NMP_REQUIRE(area <= AREA_MAX, "pixels of the kernel", area, AREA_MAX);
  const int spread = op->in[0].exponent - op->out[0].exponent;
  NMP_REQUIRE(spread >= -SPREAD, "difference of exponents", spread, -SPREAD);
  NMP_REQUIRE(spread <= SPREAD, "difference of exponents", spread, SPREAD);
  return NMP_FINE;
}

static uint64_t work(const nmp_op *op) {
  const nmp_average_pool_params *p = &op->params.average_pool;
  return nmp_pool_work(op, p->kernel_h, p->kernel_w);
}

static void run(const nmp_op *op) {
  const nmp_average_pool_params *p = &op->params.average_pool;
  const nmp_pool pool = decode(op);
  const nmp_tensor *x = &op->in[0], *y = &op->out[0];
  const size_t channels = (size_t)y->shape[3], width = (size_t)y->shape[2];
  const int spread = x->exponent - y->exponent;
  const int64_t up = (int64_t)1 << (spread > 0 ? spread : 0), down = (int64_t)1 << (spread < 0 ? -spread : 0);
  int32_t sums[TILE];
  for (size_t at = 0; at < y->size; at += channels) {
    nmp_pixels window = nmp_pool_window(op, &pool, at / channels / width, at / channels % width);
    const int64_t pixels =
        p->count_include_pad ? (int64_t)p->kernel_h * p->kernel_w : (int64_t)(window.rows * window.columns);
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

const nmp_op_type nmp_average_pool_type = {.check = check, .run = run, .work = work};
