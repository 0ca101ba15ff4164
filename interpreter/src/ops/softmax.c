/* d = max - x; E = t[d], int16: rsh(t[d & 255] * t[256 + (d >> 8)], 30); S = sum of E; y = sat(div(E * 2^-e_y, S)). */
#include "base/util.h"
#include "ops/common/tasks.h"

#define EXP_BITS 30 /* exponentials are on a grid of 2^-30 */
#define AXIS_MAX 65536
#define EXPONENT_MIN (-16) /* of y */

static nmp_rule softmax_check(const nmp_op *op) {
  NMP_TRY(nmp_check_inputs(op, 2, 2, 1));
  const nmp_tensor *x = &op->in[0], *table = &op->in[1], *y = &op->out[0];
  const int32_t axis = op->params.softmax.axis, entries = !NMP_WIDE(x->bits) ? 256 : 512;
  NMP_TRY(nmp_check_same_shape(x, y));
  NMP_COMPARE(axis, >=, 0, "axis");
  NMP_REQUIRE(axis < x->rank, "axis", axis, x->rank - 1);
  NMP_COMPARE(x->shape[axis], <=, AXIS_MAX, "length of the axis");
  NMP_COMPARE(y->exponent, >=, EXPONENT_MIN, "exponent of the output");
  NMP_COMPARE(y->exponent, <=, 0, "exponent of the output");
  NMP_TRY(nmp_check_vector(table, entries, 32, -EXP_BITS));
  const int32_t one = (int32_t)1 << EXP_BITS, *t = (const int32_t *)table->data;
  for (int32_t i = 0; i < entries; i++) {
    NMP_COMPARE(t[i], >=, 0, "exponential");
    NMP_COMPARE(t[i], <=, one, "exponential");
    NMP_REQUIRE(i % 256 != 0 || t[i] == one, "exponential of 0", t[i], one); /* so that no sum is 0 */
  }
  return NMP_FINE;
}

static int64_t exponential(const nmp_op *op, int32_t d) {
  const int32_t *t = (const int32_t *)op->in[1].data;
  return !NMP_WIDE(op->in[0].bits) ? t[d] : nmp_rsh((int64_t)t[d & 255] * t[256 + (d >> 8)], EXP_BITS);
}

#define KEPT (NMP_FIXED_CPU ? 32 : 1024) /* exponentials on the stack */

/* One division a line: 2^30 <= sum <= 2^46, so the inverse of 2 * sum has 15 to 31 bits. */
typedef struct divisor {
  uint64_t sum;
  uint32_t inverse;
} divisor;

static divisor divisor_of(int64_t sum) {
  return (divisor){.sum = (uint64_t)sum, .inverse = (uint32_t)nmp_quotient((int64_t)1 << 62, 2 * sum)};
}

/* nmp_div for part <= 2^46; the first quotient is at most 1 below. */
static int64_t divide(int64_t part, divisor d) {
  const uint64_t n = 2 * (uint64_t)part + d.sum;
  const uint32_t quotient = (uint32_t)((uint64_t)(uint32_t)(n >> 16) * d.inverse >> 46);
  return quotient + (n - quotient * (2 * d.sum) >= 2 * d.sum);
}

/* A line of n neighbours from `first`. */
static void near_line(const nmp_op *op, size_t first, size_t n) {
  const nmp_tensor *x = &op->in[0], *y = &op->out[0];
  const int32_t *table = (const int32_t *)op->in[1].data;
  const int32_t most = NMP_BY_1(NMP_IN_USE(op->kernels).largest, NMP_WIDE(x->bits))(nmp_at(x, first), n);
  int32_t e[KEPT];
  int64_t sum = 0;
  for (size_t i = 0; i < n; i += KEPT) {
    sum += NMP_BY_1(NMP_IN_USE(op->kernels).exponentials, NMP_WIDE(x->bits))(e, nmp_at(x, first + i), table,
                                                                             nmp_min(n - i, KEPT), most);
  }
  const divisor d = divisor_of(sum);
  for (size_t i = 0; i < n; i += KEPT) {
    const size_t count = nmp_min(n - i, KEPT);
    if (n > KEPT) {
      NMP_BY_1(NMP_IN_USE(op->kernels).exponentials, NMP_WIDE(x->bits))(e, nmp_at(x, first + i), table, count, most);
    }
    NMP_BY_1(NMP_IN_USE(op->kernels).quotients, NMP_WIDE(y->bits))
    (nmp_at(y, first + i), e, count, -y->exponent, d.sum, d.inverse, y->lo, y->hi);
  }
}

/* One line of n elements from `first`, `step` apart. */
static void line(const nmp_op *op, size_t first, size_t step, size_t n) {
  const nmp_tensor *x = &op->in[0], *y = &op->out[0];
  int32_t most = nmp_load(x, first);
  int64_t sum = 0;
  for (size_t i = 1; i < n; i++) {
    const int32_t value = nmp_load(x, first + i * step);
    most = value > most ? value : most;
  }
  for (size_t i = 0; i < n; i++) {
    sum += exponential(op, most - nmp_load(x, first + i * step));
  }
  const int64_t up = (int64_t)1 << -y->exponent;
  const divisor all = divisor_of(sum);
  for (size_t i = 0; i < n; i++) {
    const size_t at = first + i * step;
    nmp_store(y, at, divide(exponential(op, most - nmp_load(x, at)) * up, all));
  }
}

/* Elements from one of a line to the next. */
static size_t step_of(const nmp_op *op) {
  const nmp_tensor *x = &op->in[0];
  size_t step = 1;
  for (uint32_t i = (uint32_t)op->params.softmax.axis + 1; i < x->rank; i++) {
    step *= (size_t)x->shape[i];
  }
  return step;
}

static void run_lines(const nmp_op *op, const void *how, size_t first, size_t last) {
  const size_t n = (size_t)op->in[0].shape[op->params.softmax.axis], step = step_of(op);
  (void)how;
  for (size_t i = first; i < last; i++) {
    if (NMP_SOFTMAX_LINES && step == 1) {
      near_line(op, i * n, n);
    } else {
      line(op, i / step * n * step + i % step, step, n);
    }
  }
}

static uint64_t softmax_work(const nmp_op *op) {
  return (uint64_t)op->in[0].size * 16; /* three passes with two divisions */
}

static void softmax_run(const nmp_op *op) {
  const nmp_tensor *x = &op->in[0];
  nmp_run_tasks(op, x->size / (size_t)x->shape[op->params.softmax.axis], softmax_work(op), run_lines, NULL);
}

const nmp_op_type nmp_softmax_type = {.check = softmax_check, .run = softmax_run, .work = softmax_work};
