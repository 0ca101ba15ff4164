/* y[i,j] = sat(rsh(sum over r, c of x[rows[i] + r, columns[j] + c] * v[i,r] * h[j,c], 30 + e_y - e_x)) */
#include <string.h>

#include "ops/common/tasks.h"

#define WEIGHT_BITS 15
#define SUM_MAX ((int64_t)1 << (WEIGHT_BITS + 1)) /* of |weights| of an output along an axis: sums stay below 2^47 */
#define TILE 64                                   /* channels whose sums are on the stack */

static int shift_of(const nmp_op *op) {
  return 2 * WEIGHT_BITS + op->out[0].exponent - op->in[0].exponent;
}

typedef struct axis {
  int32_t in, out, taps;
  const int32_t *first, *weights;
  uint32_t first_count, weight_count;
} axis;

static nmp_rule check_axis(const axis *a) {
  NMP_COMPARE(a->taps, >=, 1, "taps");
  NMP_COMPARE(a->taps, <=, a->in, "taps");
  NMP_REQUIRE(a->first_count == (uint32_t)a->out, "length of rows or columns", a->first_count, a->out);
  NMP_REQUIRE(a->weight_count == (uint64_t)a->out * (uint32_t)a->taps, "number of weights", a->weight_count,
              (int64_t)a->out * a->taps);
  for (uint32_t i = 0; i < a->first_count; i++) {
    int64_t sum = 0;
    NMP_COMPARE(a->first[i], >=, 0, "first row or column");
    NMP_COMPARE(a->first[i], <=, a->in - a->taps, "first row or column");
    for (uint32_t k = 0; k < (uint32_t)a->taps; k++) {
      const int64_t weight = a->weights[i * (uint32_t)a->taps + k];
      sum += weight < 0 ? -weight : weight;
    }
    NMP_COMPARE(sum, <=, SUM_MAX, "sum of weights");
  }
  return NMP_FINE;
}

static nmp_rule resize_check(const nmp_op *op) {
  NMP_TRY(nmp_check_inputs(op, 1, 1, 1));
  const nmp_tensor *x = &op->in[0], *y = &op->out[0];
  const nmp_resize_params *p = &op->params.resize;
  NMP_COMPARE(x->rank, ==, 4, "rank of the input");
  NMP_COMPARE(y->rank, ==, 4, "rank of the output");
  NMP_COMPARE(y->shape[0], ==, x->shape[0], "batch");
  NMP_COMPARE(y->shape[3], ==, x->shape[3], "channels");
  const axis v = {.in = x->shape[1],
                  .out = y->shape[1],
                  .taps = p->taps_h,
                  .first = p->rows,
                  .weights = p->row_weights,
                  .first_count = p->rows_count,
                  .weight_count = p->row_weights_count};
  const axis h = {.in = x->shape[2],
                  .out = y->shape[2],
                  .taps = p->taps_w,
                  .first = p->columns,
                  .weights = p->column_weights,
                  .first_count = p->columns_count,
                  .weight_count = p->column_weights_count};
  NMP_TRY(check_axis(&v));
  NMP_TRY(check_axis(&h));
  NMP_COMPARE(shift_of(op), >=, 0, "shift");
  return nmp_check_shift(shift_of(op));
}

static uint64_t resize_work(const nmp_op *op) {
  const nmp_resize_params *p = &op->params.resize;
  return (uint64_t)op->out[0].size * (uint32_t)p->taps_h * (uint32_t)p->taps_w;
}

/* sums[c] += weight * x[c] */
static void add_pixel(int64_t *sums, const nmp_tensor *x, size_t at, size_t n, int64_t weight) {
  if (!NMP_WIDE(x->bits)) {
    const int8_t *from = nmp_at(x, at);
    for (size_t c = 0; c < n; c++) {
      sums[c] += weight * from[c];
    }
  } else {
    const int16_t *from = nmp_at(x, at);
    for (size_t c = 0; c < n; c++) {
      sums[c] += weight * from[c];
    }
  }
}

static void store(const nmp_tensor *y, size_t at, const int64_t *sums, size_t n, int shift) {
  for (size_t c = 0; c < n; c++) {
    const int32_t value = nmp_sat(nmp_rsh(sums[c], shift), y->lo, y->hi);
    if (!NMP_WIDE(y->bits)) {
      *(int8_t *)nmp_at(y, at + c) = (int8_t)value;
    } else {
      *(int16_t *)nmp_at(y, at + c) = (int16_t)value;
    }
  }
}

static void run_pixels(const nmp_op *op, const void *how, size_t first, size_t last) {
  const nmp_tensor *x = &op->in[0], *y = &op->out[0];
  const nmp_resize_params *p = &op->params.resize;
  const size_t channels = (size_t)y->shape[3], width = (size_t)y->shape[2], height = (size_t)y->shape[1];
  const size_t in_width = (size_t)x->shape[2], in_height = (size_t)x->shape[1];
  const size_t taps_h = (size_t)p->taps_h, taps_w = (size_t)p->taps_w;
  const int shift = shift_of(op);
  (void)how;
  for (size_t pixel = first * width; pixel < last * width; pixel++) {
    const size_t n = pixel / width / height, i = pixel / width % height, j = pixel % width;
    for (size_t c = 0, count; c < channels; c += count) {
      int64_t sums[TILE] = {0};
      count = channels - c < TILE ? channels - c : TILE;
      for (size_t tap = 0; tap < taps_h * taps_w; tap++) {
        const size_t r = tap / taps_w, k = tap % taps_w;
        const int64_t weight = (int64_t)p->row_weights[i * taps_h + r] * p->column_weights[j * taps_w + k];
        const size_t row = n * in_height + (size_t)p->rows[i] + r, column = (size_t)p->columns[j] + k;
        if (weight != 0) {
          add_pixel(sums, x, (row * in_width + column) * channels + c, count, weight);
        }
      }
      store(y, pixel * channels + c, sums, count, shift);
    }
  }
}

#if NMP_FIXED_CPU
static int is_separable(const nmp_op *op) {
  (void)op;
  return 0;
}

#define run_lines run_pixels
#else
#define STRETCH 1024 /* sums along a line of the output that are on the stack */

/* Sums along a line fit int32, and those of a window's lines are few enough. */
static int is_separable(const nmp_op *op) {
  const nmp_resize_params *p = &op->params.resize;
  if (p->taps_h > NMP_RESIZE_V_MAX) {
    return 0;
  }
  for (uint32_t i = 0; i < p->columns_count && NMP_WIDE(op->in[0].bits); i++) {
    int64_t sum = 0;
    for (uint32_t k = 0; k < (uint32_t)p->taps_w; k++) {
      const int64_t weight = p->column_weights[i * (uint32_t)p->taps_w + k];
      sum += weight < 0 ? -weight : weight;
    }
    if (sum >= SUM_MAX) {
      return 0;
    }
  }
  return 1;
}

/* Some pixels of a line of the output, or, where one has more channels than fit, a part of a pixel. Of each line of the
 * input that a line of the output needs it has the sums: those at `line` modulo NMP_RESIZE_V_MAX.
 */
typedef struct stretch {
  size_t first, n;               /* elements in a line of the output */
  size_t held[NMP_RESIZE_V_MAX]; /* line of the input + 1 */
  int32_t sums[NMP_RESIZE_V_MAX][STRETCH];
} stretch;

/* Elements of the stretch that begins there. */
static size_t stretch_of(size_t first, size_t width, size_t channels) {
  const size_t left = channels > STRETCH ? channels - first % channels : width - first;
  const size_t most = channels > STRETCH ? STRETCH : STRETCH / channels * channels;
  return left < most ? left : most;
}

static const int32_t *sums_of(const nmp_op *op, stretch *s, size_t line) {
  const nmp_tensor *x = &op->in[0];
  const nmp_resize_params *p = &op->params.resize;
  const size_t channels = (size_t)x->shape[3], row = (size_t)x->shape[2] * channels, slot = line % NMP_RESIZE_V_MAX;
  const size_t column = s->first / channels, channel = s->first % channels;
  const nmp_columns how = {.first = p->columns + column,
                           .w = p->column_weights + column * (size_t)p->taps_w,
                           .taps = (size_t)p->taps_w,
                           .count = s->n < channels ? 1 : s->n / channels,
                           .n = s->n < channels ? s->n : channels,
                           .x_stride = channels,
                           .size = row - channel};
  if (s->held[slot] != line + 1) {
    NMP_BY_1(op->kernels->resize_h, NMP_WIDE(x->bits))(s->sums[slot], nmp_at(x, line * row + channel), &how);
    s->held[slot] = line + 1;
  }
  return s->sums[slot];
}

/* True when line i of an image is what the one before is. */
static int is_repeated(const nmp_resize_params *p, size_t i) {
  const size_t taps = (size_t)p->taps_h;
  const int32_t *w = p->row_weights + i * taps;
  return i > 0 && p->rows[i] == p->rows[i - 1] && memcmp(w, w - taps, taps * sizeof(*w)) == 0;
}

/* Lines of the input are resized once for all lines of the output. */
static void run_lines(const nmp_op *op, const void *how, size_t first, size_t last) {
  const nmp_tensor *x = &op->in[0], *y = &op->out[0];
  const nmp_resize_params *p = &op->params.resize;
  const size_t channels = (size_t)y->shape[3], height = (size_t)y->shape[1], width = (size_t)y->shape[2] * channels;
  const size_t taps = (size_t)p->taps_h;
  stretch s;
  (void)how;
  for (s.first = 0; s.first < width; s.first += s.n) {
    s.n = stretch_of(s.first, width, channels);
    memset(s.held, 0, sizeof(s.held));
    for (size_t line = first; line < last; line++) {
      const size_t i = line % height, source = line / height * (size_t)x->shape[1] + (size_t)p->rows[i];
      const size_t at = line * width + s.first;
      const int32_t *sums[NMP_RESIZE_V_MAX];
      if (line > first && is_repeated(p, i)) {
        memcpy(nmp_at(y, at), nmp_at(y, at - width), s.n * nmp_bytes(y));
        continue;
      }
      for (size_t r = 0; r < taps; r++) {
        sums[r] = sums_of(op, &s, source + r);
      }
      NMP_BY_1(op->kernels->resize_v, NMP_WIDE(y->bits))
      (nmp_at(y, at), sums, p->row_weights + i * taps, taps, s.n, shift_of(op), y->lo, y->hi);
    }
  }
}
#endif

static void resize_run(const nmp_op *op) {
  const nmp_tensor *y = &op->out[0];
  const size_t lines = (size_t)y->shape[0] * (size_t)y->shape[1];
  nmp_run_tasks(op, lines, 8 * (uint64_t)y->size, is_separable(op) ? run_lines : run_pixels, NULL);
}

const nmp_op_type nmp_resize_type = {.check = resize_check, .run = resize_run, .work = resize_work};
