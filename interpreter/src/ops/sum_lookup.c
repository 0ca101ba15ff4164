/* A function of sums of products, or of weighted squares, read from the wide sum: a table over its octaves (FORMAT.md).
 *
 *   S = sum over k of w[o,k] * x[k*G + g], or of its square, g = floor(o / (O/G)) of G groups
 *   B = min(max(S, 0), 2^(low + octaves) - 1)
 *   below 2^low one piece, then 2^pieces in each octave;      y = sat(rsh(t[i] * 2^16 + (t[i+1] - t[i]) * f, 24))
 */
#include "ops/common/tasks.h"

#define FRACTION 8     /* bits of the table below y's grid */
#define PLACE 16       /* bits of a place within a piece */
#define PIECES_MAX 8   /* log2 of the pieces of an octave */
#define SUM_BITS 62    /* |S| is at most 2 to this power */
#define WORK_OF_SUM 32 /* steps of a table's piece */

/* Octaves of the table; -1 where its length is none. */
static int64_t octaves(const nmp_op *op) {
  const int64_t pieces = (int64_t)op->in[2].size - 2;
  const int k = op->params.sum_lookup.pieces;
  return pieces > 0 && pieces % ((int64_t)1 << k) == 0 ? pieces >> k : -1;
}

static nmp_rule sum_lookup_check(const nmp_op *op) {
  NMP_TRY(nmp_check_inputs(op, 3, 3, 1));
  const nmp_tensor *x = &op->in[0], *w = &op->in[1], *y = &op->out[0];
  const nmp_sum_lookup_params *p = &op->params.sum_lookup;
  NMP_COMPARE(p->low, >=, 0, "low end of the table");
  NMP_REQUIRE(p->low < SUM_BITS, "low end of the table", p->low, SUM_BITS - 1);
  NMP_COMPARE(p->pieces, >=, 0, "pieces of an octave");
  NMP_COMPARE(p->pieces, <=, PIECES_MAX, "pieces of an octave");
  NMP_TRY(nmp_check_vector(&op->in[2], (int64_t)op->in[2].size, 32, y->exponent - FRACTION));
  NMP_REQUIRE(octaves(op) > 0, "octaves of the table", octaves(op), 1);
  NMP_REQUIRE(p->low + octaves(op) <= SUM_BITS, "octaves of the table", octaves(op), SUM_BITS - p->low);
  NMP_REQUIRE(w->is_const, "constant weights", 0, 1);
  NMP_COMPARE(w->exponent_count, ==, 1, "exponents of the weights");
  NMP_COMPARE(w->rank, ==, 2, "rank of the weights");
  NMP_COMPARE(x->rank, >=, 1, "rank of the input");
  NMP_COMPARE(y->rank, ==, x->rank, "rank of the output");
  for (uint32_t i = 0; i + 1 < x->rank; i++) {
    NMP_COMPARE(y->shape[i], ==, x->shape[i], "dimension of the output");
  }
  const int64_t channels = x->shape[x->rank - 1u];
  const size_t k = (size_t)w->shape[1];
  NMP_COMPARE(p->groups, >=, 1, "groups");
  NMP_REQUIRE(w->shape[0] % p->groups == 0, "channels that do not divide into groups", w->shape[0], p->groups);
  NMP_REQUIRE((int64_t)w->shape[1] * p->groups == channels, "products of a sum", w->shape[1], channels / p->groups);
  NMP_COMPARE(k, <=, NMP_K_MAX, "products of a sum");
  NMP_COMPARE(y->shape[y->rank - 1u], ==, w->shape[0], "channels of the output");
  if (w->bits == 32) { /* narrower ones are too small to matter */
    const int64_t most = (int64_t)1 << (SUM_BITS - (x->bits - 1) * (p->squared ? 2 : 1));
    const int32_t *q = (const int32_t *)w->data;
    for (size_t row = 0; row < w->size; row += k) {
      int64_t total = 0;
      for (size_t i = row; i < row + k; i++) {
        total += q[i] < 0 ? -(int64_t)q[i] : q[i];
      }
      NMP_COMPARE(total, <=, most, "sum of the weights");
    }
  }
  return NMP_FINE;
}

static int64_t weight(const nmp_tensor *w, size_t i) {
  return w->bits == 32 ? ((const int32_t *)w->data)[i] : nmp_load(w, i);
}

/* n products of weights from w0 on, and elements from x0 on that lie `step` apart. */
static int64_t sum(const nmp_op *op, size_t x0, size_t step, size_t w0, size_t n) {
  const nmp_tensor *x = &op->in[0], *w = &op->in[1];
  int64_t total = 0;
  for (size_t i = 0; i < n; i++) {
    const int64_t factor = weight(w, w0 + i);
    if (factor) { /* bands are narrow */
      const int64_t q = nmp_load(x, x0 + i * step);
      total += factor * (op->params.sum_lookup.squared ? q * q : q);
    }
  }
  return total;
}

/* The table at a sum. */
static int64_t value(const nmp_op *op, int64_t total) {
  const int low = op->params.sum_lookup.low, pieces = op->params.sum_lookup.pieces;
  const int64_t end = (int64_t)1 << (low + (int)octaves(op));
  const int32_t *t = (const int32_t *)op->in[2].data;
  const uint64_t b = (uint64_t)(total < 0 ? 0 : total < end ? total : end - 1);
  uint64_t at; /* pieces, with PLACE bits of a place within one */
  if (b >> low == 0) {
    at = low > PLACE ? b >> (low - PLACE) : b << (PLACE - low);
  } else {
    int octave = low;
    while (b >> octave >> 1) {
      octave++;
    }
    const int down = octave - pieces - PLACE;
    const uint64_t g = down > 0 ? b >> down : b << -down;
    at = g + (((uint64_t)(octave - low - 1) << pieces) << PLACE) + ((uint64_t)1 << PLACE);
  }
  const size_t i = (size_t)(at >> PLACE);
  const int64_t f = (int64_t)(at & (((uint64_t)1 << PLACE) - 1));
  return nmp_rsh(t[i] * ((int64_t)1 << PLACE) + ((int64_t)t[i + 1] - t[i]) * f, PLACE + FRACTION);
}

static void run_rows(const nmp_op *op, const void *how, size_t first, size_t last) {
  const nmp_tensor *x = &op->in[0], *w = &op->in[1], *y = &op->out[0];
  const size_t k = (size_t)w->shape[1], outputs = (size_t)w->shape[0], groups = (size_t)op->params.sum_lookup.groups;
  const size_t channels = (size_t)x->shape[x->rank - 1u], of_group = outputs / groups;
  (void)how;
  for (size_t row = first; row < last; row++) {
    for (size_t o = 0; o < outputs; o++) {
      const size_t at = row * channels + o / of_group;
      nmp_store(y, row * outputs + o, value(op, sum(op, at, groups, o * k, k)));
    }
  }
}

static uint64_t sum_lookup_work(const nmp_op *op) {
  return (uint64_t)op->out[0].size * ((uint32_t)op->in[1].shape[1] + (uint64_t)WORK_OF_SUM);
}

static void sum_lookup_run(const nmp_op *op) {
  const nmp_tensor *x = &op->in[0];
  nmp_run_tasks(op, x->size / (size_t)x->shape[x->rank - 1u], sum_lookup_work(op), run_rows, NULL);
}

const nmp_op_type nmp_sum_lookup_type = {.check = sum_lookup_check, .run = sum_lookup_run, .work = sum_lookup_work};
