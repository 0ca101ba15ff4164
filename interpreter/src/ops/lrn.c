/* x * (bias + alpha / size * (sum of squares of neighbouring channels))^-beta, the power from a table (FORMAT.md).
 *
 *   B = rsh(S, -shift) + offset * 2^offset_shift = v * 2^t, 2^30 <= v < 2^31;   i = (v >> 22) - 256, f = v mod 2^22
 *   a = rsh(rsh(c[i] * 2^22 + (c[i+1] - c[i]) * f, 22) * m[t+30], 31);          y = sat(rsh(x * a, e[t+30]))
 */
#include "base/util.h"
#include "ops/common/tasks.h"

#define CHANNELS_MAX 4096 /* legal channels of a sum */
#define BASE_BITS 61      /* the sum and the offset are below 2^61 each */
#define PIECES 256
#define POWERS 62
#define ENTRIES (PIECES + 1 + 2 * POWERS)
#define SHIFT_MAX 62

static nmp_rule lrn_check(const nmp_op *op) {
  NMP_TRY(nmp_check_inputs(op, 2, 2, 1));
  const nmp_tensor *x = &op->in[0], *table = &op->in[1];
  const nmp_lrn_params *p = &op->params.lrn;
  NMP_TRY(nmp_check_same_shape(x, &op->out[0]));
  NMP_COMPARE(x->rank, >=, 1, "rank of the input");
  NMP_COMPARE(p->size, >=, 1, "channels of a sum");
  NMP_COMPARE(p->size, <=, CHANNELS_MAX, "channels of a sum");
  int bits = 2 * (x->bits - 1); /* of a sum */
  while (((int64_t)p->size << 2 * (x->bits - 1)) > (int64_t)1 << bits) {
    bits++;
  }
  NMP_COMPARE(p->shift, >=, -SHIFT_MAX, "shift of the sum");
  NMP_REQUIRE(p->shift < BASE_BITS - bits, "shift of the sum", p->shift, BASE_BITS - bits - 1);
  NMP_COMPARE(p->offset, >=, 1, "offset");
  NMP_COMPARE(p->offset_shift, >=, 0, "shift of the offset");
  NMP_COMPARE(p->offset_shift, <=, BASE_BITS - 31, "shift of the offset");
  NMP_TRY(nmp_check_vector(table, ENTRIES, 32, 0));
  const int32_t *t = (const int32_t *)table->data;
  for (int32_t i = 0; i < ENTRIES; i++) {
    const int32_t most = i <= PIECES ? (int32_t)1 << 30 : i <= PIECES + POWERS ? INT32_MAX : SHIFT_MAX;
    NMP_COMPARE(t[i], >=, 0, "entry of the table");
    NMP_COMPARE(t[i], <=, most, "entry of the table");
  }
  return NMP_FINE;
}

/* Factor of elements, and the shift of the product, from the sum of squares around them. */
typedef struct factor {
  int64_t a;
  int shift;
} factor;

static factor factor_of(const int32_t *table, const nmp_lrn_params *p, int64_t sum) {
  const int32_t *samples = table, *multipliers = table + PIECES + 1, *shifts = multipliers + POWERS;
  const int64_t base = (p->shift > 0 ? sum * ((int64_t)1 << p->shift) : nmp_rsh(sum, -p->shift)) +
                       (int64_t)p->offset * ((int64_t)1 << p->offset_shift);
  const int t = nmp_bits_of((uint64_t)base) - 1; /* 30 more than in the equations */
  const int64_t v = t > 30 ? base >> (t - 30) : base << (30 - t);
  const int64_t i = (v >> 22) - PIECES, f = v & (((int64_t)1 << 22) - 1);
  const int64_t power = nmp_rsh(samples[i] * ((int64_t)1 << 22) + ((int64_t)samples[i + 1] - samples[i]) * f, 22);
  return (factor){nmp_rsh(power * multipliers[t], 31), shifts[t]};
}

static int64_t square(int64_t q) {
  return q * q;
}

/* A pixel all of whose channels see all of them. */
static void run_whole(const nmp_op *op, size_t pixel, size_t channels) {
  const nmp_tensor *x = &op->in[0];
  int64_t sum, squares;
  NMP_BY_1(NMP_IN_USE(op->kernels).moments, NMP_WIDE(x->bits))(&sum, &squares, nmp_at(x, pixel), channels);
  const factor all = factor_of((const int32_t *)op->in[1].data, &op->params.lrn, squares);
  for (size_t c = 0; c < channels; c++) {
    nmp_store(&op->out[0], pixel + c, nmp_rsh(nmp_load(x, pixel + c) * all.a, all.shift));
  }
}

static void run_pixels(const nmp_op *op, const void *how, size_t first, size_t last) {
  const nmp_tensor *x = &op->in[0], *y = &op->out[0];
  const nmp_lrn_params *p = &op->params.lrn;
  const size_t channels = (size_t)x->shape[x->rank - 1];
  const size_t before = (size_t)(p->size - 1) / 2, after = (size_t)p->size / 2;
  const int whole = before + 1 >= channels; /* and as many after */
  (void)how;
  for (size_t pixel = first * channels; pixel < last * channels; pixel += channels) {
    int64_t sum = 0;
    if (whole) {
      run_whole(op, pixel, channels);
      continue;
    }
    for (size_t c = 0; c < after; c++) {
      sum += square(nmp_load(x, pixel + c));
    }
    for (size_t c = 0; c < channels; c++) {
      sum += c + after < channels ? square(nmp_load(x, pixel + c + after)) : 0;
      sum -= c > before ? square(nmp_load(x, pixel + c - before - 1)) : 0;
      const factor own = factor_of((const int32_t *)op->in[1].data, p, sum);
      nmp_store(y, pixel + c, nmp_rsh(nmp_load(x, pixel + c) * own.a, own.shift));
    }
  }
}

static uint64_t lrn_work(const nmp_op *op) {
  return (uint64_t)op->in[0].size * 48 + (uint64_t)op->params.lrn.size * op->in[0].size;
}

static void lrn_run(const nmp_op *op) {
  const nmp_tensor *x = &op->in[0];
  nmp_run_tasks(op, x->size / (size_t)x->shape[x->rank - 1], lrn_work(op), run_pixels, NULL);
}

const nmp_op_type nmp_lrn_type = {.check = lrn_check, .run = lrn_run, .work = lrn_work};
