#include "ops/common/broadcast.h"

#include <string.h>

#include "ops/common/tasks.h"

/* The size of t along axis i of the output, 1 for the axes in front of its own. */
static int32_t dim(const nmp_op *op, const nmp_tensor *t, uint32_t i) {
  const uint32_t missing = (uint32_t)(op->out[0].rank - t->rank);
  return i < missing ? 1 : t->shape[i - missing];
}

nmp_rule nmp_check_broadcast(const nmp_op *op) {
  NMP_TRY(nmp_check_inputs(op, 2, 2, 2));
  const nmp_tensor *a = &op->in[0], *b = &op->in[1], *y = &op->out[0];
  const uint32_t rank = a->rank > b->rank ? a->rank : b->rank;
  NMP_COMPARE(y->rank, ==, rank, "rank of the output");
  for (uint32_t i = 0; i < rank; i++) {
    const int32_t m = dim(op, a, i), n = dim(op, b, i), most = m > n ? m : n;
    NMP_REQUIRE(m == n || m == 1 || n == 1, "dimensions that do not broadcast", m, n);
    NMP_COMPARE(y->shape[i], ==, most, "dimension of the output");
  }
  return NMP_FINE;
}

/* Axes of the output whose neighbours both operands walk through in the same way are merged into one. */
typedef struct axes {
  uint32_t count;
  size_t size[NMP_RANK_MAX + 1];
  size_t a[NMP_RANK_MAX + 1], b[NMP_RANK_MAX + 1]; /* strides in elements, 0 where the operand is repeated */
} axes;

/* From the innermost axis outwards. Nothing is written behind `count`: small ops would take long to clear it. */
static void merge(const nmp_op *op, axes *merged) {
  size_t a_step = 1, b_step = 1;
  merged->count = 1;
  merged->size[0] = merged->a[0] = merged->b[0] = 1;
  for (uint32_t i = op->out[0].rank; i-- > 0;) {
    const size_t size = (size_t)op->out[0].shape[i];
    const size_t m = (size_t)dim(op, &op->in[0], i), n = (size_t)dim(op, &op->in[1], i);
    const size_t a = m == 1 ? 0 : a_step, b = n == 1 ? 0 : b_step;
    const uint32_t last = merged->count - 1;
    a_step *= m;
    b_step *= n;
    if (size == 1) {
      continue;
    }
    if (merged->size[last] == 1) {
      merged->size[last] = size;
      merged->a[last] = a;
      merged->b[last] = b;
    } else if (a == merged->a[last] * merged->size[last] && b == merged->b[last] * merged->size[last]) {
      merged->size[last] *= size;
    } else {
      merged->size[merged->count] = size;
      merged->a[merged->count] = a;
      merged->b[merged->count] = b;
      merged->count++;
    }
  }
}

typedef struct rows {
  axes m;
  nmp_add_fn *kernel;
  const nmp_binary *how;
} rows;

static void run_rows(const nmp_op *op, const void *how, size_t first, size_t last) {
  const rows *r = how;
  const axes *m = &r->m;
  for (size_t at = first, n; at < last; at += n) {
    const size_t column = at % m->size[0];
    size_t rest = at / m->size[0], a = column * m->a[0], b = column * m->b[0];
    n = m->size[0] - column < last - at ? m->size[0] - column : last - at;
    for (uint32_t i = 1; i < m->count; i++) {
      a += rest % m->size[i] * m->a[i];
      b += rest % m->size[i] * m->b[i];
      rest /= m->size[i];
    }
    r->kernel(nmp_at(&op->out[0], at), nmp_at(&op->in[0], a), nmp_at(&op->in[1], b), n, r->how);
  }
}

#if !NMP_FIXED_CPU
#define REPEATED 1024 /* bytes on the stack */

/* A short operand that each row of the other meets is written several times, so that rows become long. */
typedef struct repeated {
  nmp_add_fn *kernel;
  const nmp_binary *how;
  uint32_t which;        /* the short operand */
  size_t period, length; /* its elements, and those of all copies */
  int16_t copies[REPEATED / 2];
} repeated;

static int is_short(const axes *m, const size_t *strides, const size_t *others) {
  return m->count == 2 && strides[0] == 1 && strides[1] == 0 && others[0] == 1 && others[1] == m->size[0];
}

static void run_repeated(const nmp_op *op, const void *how, size_t first, size_t last) {
  const repeated *r = how;
  for (size_t at = first, n; at < last; at += n) {
    const size_t phase = at % r->period;
    const void *copy = (const uint8_t *)r->copies + phase * nmp_bytes(&op->in[r->which]),
               *other = nmp_at(&op->in[1 - r->which], at);
    n = r->length - phase < last - at ? r->length - phase : last - at;
    r->kernel(nmp_at(&op->out[0], at), r->which == 0 ? copy : other, r->which == 0 ? other : copy, n, r->how);
  }
}

/* True when it was done. */
static int broadcast_repeated(const nmp_op *op, const axes *m, nmp_add_fn *kernel, const nmp_binary *how) {
  repeated r = {.kernel = kernel, .how = how, .which = is_short(m, m->b, m->a) ? 1 : 0, .period = m->size[0]};
  const size_t bytes = m->size[0] * nmp_bytes(&op->in[r.which]);
  if (bytes > REPEATED / 2 || (r.which == 0 && !is_short(m, m->a, m->b))) {
    return 0;
  }
  for (size_t used = 0; used + bytes <= REPEATED; used += bytes) {
    memcpy((uint8_t *)r.copies + used, op->in[r.which].data, bytes);
    r.length += r.period;
  }
  nmp_run_tasks(op, op->out[0].size, 2 * (uint64_t)op->out[0].size, run_repeated, &r);
  return 1;
}

#define SHORT 64   /* elements of a row that is put together with others */
#define JOINED 512 /* elements of operands on the stack */

/* Rows so short that a call for each would take longer than copies of them. is_copied: by operand; the others lie as
 * the output does.
 */
typedef struct joined {
  const axes *m;
  nmp_add_fn *kernel;
  const nmp_binary *how;
  int is_copied[2];
} joined;

/* Place where a row begins in an operand. */
typedef struct place {
  size_t at, digits[NMP_RANK_MAX + 1];
} place;

static void find_row(place *p, const axes *m, const size_t *strides, size_t row) {
  memset(p, 0, sizeof *p);
  for (uint32_t i = 1; i < m->count; i++) {
    p->digits[i] = row % m->size[i];
    p->at += p->digits[i] * strides[i];
    row /= m->size[i];
  }
}

static void move_on(place *p, const axes *m, const size_t *strides) {
  for (uint32_t i = 1; i < m->count; i++) {
    p->at += strides[i];
    if (++p->digits[i] < m->size[i]) {
      return;
    }
    p->at -= m->size[i] * strides[i];
    p->digits[i] = 0;
  }
}

static void copy_row(void *to, const nmp_tensor *t, size_t at, size_t step, size_t n) {
  if (step == 1) {
    memcpy(to, nmp_at(t, at), n * nmp_bytes(t));
  } else if (nmp_bytes(t) == 1) {
    memset(to, *(const int8_t *)nmp_at(t, at), n);
  } else {
    for (size_t i = 0; i < n; i++) {
      ((int16_t *)to)[i] = *(const int16_t *)nmp_at(t, at);
    }
  }
}

/* `count` elements of an operand from element `first` of the output on. */
static void copy_rows(void *to, const nmp_tensor *t, const axes *m, const size_t *strides, size_t first, size_t count) {
  place p;
  find_row(&p, m, strides, first / m->size[0]);
  size_t column = first % m->size[0];
  for (size_t i = 0, n; i < count; i += n) {
    n = m->size[0] - column < count - i ? m->size[0] - column : count - i;
    copy_row((uint8_t *)to + i * nmp_bytes(t), t, p.at + column * strides[0], strides[0], n);
    move_on(&p, m, strides);
    column = 0;
  }
}

static void run_joined(const nmp_op *op, const void *how, size_t first, size_t last) {
  const joined *j = how;
  const size_t *const strides[2] = {j->m->a, j->m->b};
  int16_t copies[2][JOINED];
  for (size_t at = first, n; at < last; at += n) {
    const void *operands[2];
    n = last - at < JOINED ? last - at : JOINED;
    for (size_t i = 0; i < 2; i++) {
      operands[i] = j->is_copied[i] ? copies[i] : nmp_at(&op->in[i], at);
      if (j->is_copied[i]) {
        copy_rows(copies[i], &op->in[i], j->m, strides[i], at, n);
      }
    }
    j->kernel(nmp_at(&op->out[0], at), operands[0], operands[1], n, j->how);
  }
}

static int lies_as_output(const axes *m, const size_t *strides) {
  size_t stride = 1;
  for (uint32_t i = 0; i < m->count; i++) {
    if (strides[i] != stride) {
      return 0;
    }
    stride *= m->size[i];
  }
  return 1;
}

/* True when it was done. */
static int broadcast_joined(const nmp_op *op, const axes *m, nmp_add_fn *kernel, nmp_binary *how) {
  if (m->count == 1 || m->size[0] > SHORT) {
    return 0;
  }
  const joined j = {m, kernel, how, {!lies_as_output(m, m->a), !lies_as_output(m, m->b)}};
  how->a_step = how->b_step = 1;
  nmp_run_tasks(op, op->out[0].size, 2 * (uint64_t)op->out[0].size, run_joined, &j);
  return 1;
}

static int broadcast_short(const nmp_op *op, const axes *m, nmp_add_fn *kernel, nmp_binary *how) {
  return broadcast_repeated(op, m, kernel, how) || broadcast_joined(op, m, kernel, how);
}
#else
static int broadcast_short(const nmp_op *op, const axes *m, nmp_add_fn *kernel, nmp_binary *how) {
  (void)op;
  (void)m;
  (void)kernel;
  (void)how;
  return 0;
}
#endif

void nmp_broadcast(const nmp_op *op, nmp_add_fn *kernel, nmp_binary *how) {
#if NMP_SMALL
  how->a_wide = NMP_WIDE(op->in[0].bits);
  how->b_wide = NMP_WIDE(op->in[1].bits);
  how->y_wide = NMP_WIDE(op->out[0].bits);
#endif
  rows r;
  merge(op, &r.m);
  r.kernel = kernel;
  r.how = how;
  how->a_step = r.m.a[0];
  how->b_step = r.m.b[0];
  if (!broadcast_short(op, &r.m, kernel, how)) {
    nmp_run_tasks(op, op->out[0].size, 2 * (uint64_t)op->out[0].size, run_rows, &r);
  }
}
