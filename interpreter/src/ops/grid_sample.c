/* y[n,i,j] = sat(rsh(the pixels of x[n] around the place g[n,i,j], each times its weight, 30 + e_y - e_x)) */
#include "ops/common/tasks.h"

#define PLACE_BITS 15 /* places and weights are whole numbers of 2^-15 */
#define PIXEL ((int64_t)1 << PLACE_BITS)

enum { ZEROS, BORDER, REFLECTION };

static int shift_of(const nmp_op *op) {
  return 2 * PLACE_BITS + op->out[0].exponent - op->in[0].exponent;
}

static int place_shift(const nmp_op *op) {
  return 1 - PLACE_BITS - op->in[1].exponent;
}

static nmp_rule grid_sample_check(const nmp_op *op) {
  NMP_TRY(nmp_check_inputs(op, 2, 2, 2));
  const nmp_tensor *x = &op->in[0], *g = &op->in[1], *y = &op->out[0];
  const int32_t padding = op->params.grid_sample.padding;
  NMP_COMPARE(x->rank, ==, 4, "rank of the input");
  NMP_COMPARE(g->rank, ==, 4, "rank of the grid");
  NMP_COMPARE(y->rank, ==, 4, "rank of the output");
  NMP_COMPARE(g->shape[0], ==, x->shape[0], "batch of the grid");
  NMP_COMPARE(g->shape[3], ==, 2, "coordinates of a place");
  for (uint32_t i = 0; i < 3; i++) {
    NMP_COMPARE(y->shape[i], ==, g->shape[i], "dimension of the output");
  }
  NMP_COMPARE(y->shape[3], ==, x->shape[3], "channels");
  NMP_COMPARE(padding, >=, ZEROS, "padding");
  NMP_COMPARE(padding, <=, REFLECTION, "padding");
  NMP_COMPARE(shift_of(op), >=, 0, "shift");
  NMP_TRY(nmp_check_shift(shift_of(op)));
  return nmp_check_shift(place_shift(op));
}

/* The multiple of PIXEL next to p, of two the even one. */
static int64_t rounded(int64_t p) {
  const int64_t low = p >> PLACE_BITS, part = p - low * PIXEL;
  return (low + (part > PIXEL / 2 || (part == PIXEL / 2 && low % 2 != 0))) * PIXEL;
}

/* p mirrored at first and first + span until it lies between them. */
static int64_t reflected(int64_t p, int64_t first, int64_t span) {
  if (p < first || p > first + span) {
    const int64_t past = p - first - nmp_quotient(p - first, 2 * span) * (2 * span);
    return first + (past > span ? 2 * span - past : past);
  }
  return p;
}

/* Place of the grid's q along an axis of n pixels. Without a reflection |p| < 2^62. */
static int64_t place_of(const nmp_op *op, int32_t q, int32_t n) {
  const nmp_grid_sample_params *params = &op->params.grid_sample;
  const int64_t last = n - 1, span = params->align_corners ? last : n;
  int64_t p = nmp_rsh(q * span, place_shift(op)) + last * (PIXEL / 2);
  if (params->nearest) {
    p = rounded(p);
  }
  if (params->padding == BORDER) {
    return p < 0 ? 0 : p > last * PIXEL ? last * PIXEL : p;
  }
  if (params->padding == REFLECTION) {
    return reflected(p, params->align_corners ? 0 : -PIXEL / 2, span * PIXEL);
  }
  return p;
}

/* The pixels of an axis that are seen from a place: at most two. */
typedef struct taps {
  size_t pixel[2], count;
  int64_t weight[2];
} taps;

static taps taps_of(const nmp_op *op, int32_t q, int32_t n) {
  const int64_t p = place_of(op, q, n), low = p >> PLACE_BITS, part = p - low * PIXEL;
  taps found = {.count = 0};
  for (int64_t k = 0; k < 2; k++) {
    const int64_t weight = k ? part : PIXEL - part, last = n - 1;
    const int64_t pixel = low + k < 0 ? 0 : low + k > last ? last : low + k;
    if (weight != 0 && (pixel == low + k || op->params.grid_sample.padding != ZEROS)) {
      found.pixel[found.count] = (size_t)pixel;
      found.weight[found.count++] = weight;
    }
  }
  return found;
}

static void run_pixels(const nmp_op *op, const void *how, size_t first, size_t last) {
  const nmp_tensor *x = &op->in[0], *g = &op->in[1], *y = &op->out[0];
  const size_t channels = (size_t)x->shape[3], width = (size_t)x->shape[2], height = (size_t)x->shape[1];
  const size_t plane = (size_t)y->shape[1] * (size_t)y->shape[2];
  (void)how;
  for (size_t pixel = first; pixel < last; pixel++) {
    const taps columns = taps_of(op, nmp_load(g, 2 * pixel), x->shape[2]);
    const taps rows = taps_of(op, nmp_load(g, 2 * pixel + 1), x->shape[1]);
    for (size_t c = 0; c < channels; c++) {
      int64_t sum = 0;
      for (size_t r = 0; r < rows.count; r++) {
        const size_t row = pixel / plane * height + rows.pixel[r];
        for (size_t k = 0; k < columns.count; k++) {
          const size_t at = (row * width + columns.pixel[k]) * channels + c;
          sum += rows.weight[r] * columns.weight[k] * nmp_load(x, at);
        }
      }
      nmp_store(y, pixel * channels + c, nmp_rsh(sum, shift_of(op)));
    }
  }
}

static uint64_t grid_sample_work(const nmp_op *op) {
  return (uint64_t)op->out[0].size * 4 + (uint64_t)op->in[1].size * 16;
}

static void grid_sample_run(const nmp_op *op) {
  nmp_run_tasks(op, op->in[1].size / 2, grid_sample_work(op), run_pixels, NULL);
}

const nmp_op_type nmp_grid_sample_type = {.check = grid_sample_check, .run = grid_sample_run, .work = grid_sample_work};
