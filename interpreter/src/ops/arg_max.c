/* The indices of the largest or smallest elements along an axis, the first or the last of equal ones first.
 *
 * Those found so far are a heap in the output (Williams, 1964), the one that all others come before at its root: n
 * elements take n * log2(count) steps and no memory. In the end the heap is sorted in place.
 */
#include "ops/common/tasks.h"

#define AXIS_MAX 32768

/* Elements of the input from `first` and of the output from `to` on, each `step` apart. */
typedef struct {
  const nmp_op *op;
  size_t first, to, step;
} line;

static nmp_rule arg_max_check(const nmp_op *op) {
  NMP_TRY(nmp_check_inputs(op, 1, 1, 1));
  const nmp_tensor *x = &op->in[0], *y = &op->out[0];
  const int32_t axis = op->params.arg_max.axis, count = op->params.arg_max.count;
  NMP_COMPARE(y->rank, ==, x->rank, "rank of the output");
  NMP_COMPARE(axis, >=, 0, "axis");
  NMP_REQUIRE(axis < x->rank, "axis", axis, x->rank - 1);
  NMP_COMPARE(x->shape[axis], <=, AXIS_MAX, "length of the axis");
  NMP_COMPARE(count, >=, 1, "count");
  NMP_COMPARE(count, <=, x->shape[axis], "count");
  NMP_COMPARE(y->exponent, ==, 0, "exponent of the output");
  NMP_REQUIRE(y->lo <= 0, "least index", 0, y->lo);
  NMP_COMPARE(x->shape[axis] - 1, <=, y->hi, "largest index");
  for (int32_t i = 0; i < x->rank; i++) {
    const int32_t size = i == axis ? count : x->shape[i];
    NMP_COMPARE(y->shape[i], ==, size, "dimension of the output");
  }
  return NMP_FINE;
}

/* Larger for what comes first, ties apart. */
static int32_t value(const line *l, int32_t index) {
  const int32_t q = nmp_load(&l->op->in[0], l->first + (size_t)index * l->step);
  return l->op->params.arg_max.smallest ? -q : q;
}

static int before(const line *l, int32_t a, int32_t b) {
  const int32_t p = value(l, a), q = value(l, b);
  return p != q ? p > q : (a > b) == (l->op->params.arg_max.last != 0);
}

static int32_t get(const line *l, int32_t slot) {
  return nmp_load(&l->op->out[0], l->to + (size_t)slot * l->step);
}

static void set(const line *l, int32_t slot, int32_t index) {
  nmp_store(&l->op->out[0], l->to + (size_t)slot * l->step, index);
}

/* Puts an index into a slot of the first `count`, or into one below, so that it comes after those below it. */
static void sift(const line *l, int32_t count, int32_t slot, int32_t index) {
  for (int32_t below = 2 * slot + 1; below < count; below = 2 * slot + 1) {
    below += below + 1 < count && before(l, get(l, below), get(l, below + 1));
    if (!before(l, index, get(l, below))) {
      break;
    }
    set(l, slot, get(l, below));
    slot = below;
  }
  set(l, slot, index);
}

static void select(const line *l, int32_t n, int32_t count) {
  const nmp_tensor *x = &l->op->in[0];
  const int32_t sign = l->op->params.arg_max.smallest ? -1 : 1, tie = l->op->params.arg_max.last ? 1 : 0;
  for (int32_t i = 0; i < count; i++) {
    set(l, i, i);
  }
  for (int32_t slot = count / 2; slot-- > 0;) {
    sift(l, count, slot, slot);
  }
  int32_t worst = value(l, get(l, 0)) - tie;
  size_t at = l->first + (size_t)count * l->step;
  for (int32_t i = count; i < n; i++, at += l->step) {
    if (sign * nmp_load(x, at) > worst) {
      sift(l, count, 0, i);
      worst = value(l, get(l, 0)) - tie;
    }
  }
  for (int32_t end = count - 1; end > 0; end--) {
    const int32_t index = get(l, end);
    set(l, end, get(l, 0));
    sift(l, end, 0, index);
  }
}

static void run_lines(const nmp_op *op, const void *how, size_t first, size_t last) {
  const nmp_tensor *x = &op->in[0];
  const int32_t axis = op->params.arg_max.axis, n = x->shape[axis], count = op->params.arg_max.count;
  (void)how;
  size_t step = 1;
  for (int32_t i = axis + 1; i < x->rank; i++) {
    step *= (size_t)x->shape[i];
  }
  for (size_t i = first; i < last; i++) {
    const size_t group = i / step * step, at = i % step;
    const line l = {op, group * (size_t)n + at, group * (size_t)count + at, step};
    select(&l, n, count);
  }
}

static uint64_t arg_max_work(const nmp_op *op) {
  uint64_t steps = 1;
  for (int32_t rest = op->params.arg_max.count - 1; rest > 0; rest /= 2) {
    steps += 2;
  }
  return steps * ((uint64_t)op->in[0].size + op->out[0].size);
}

static void arg_max_run(const nmp_op *op) {
  nmp_run_tasks(op, op->out[0].size / (size_t)op->params.arg_max.count, arg_max_work(op), run_lines, NULL);
}

const nmp_op_type nmp_arg_max_type = {.check = arg_max_check, .run = arg_max_run, .work = arg_max_work};
