#include "core/fuse/fuse_rows.h"

#if NMP_KEEP_STEPS
#include <string.h>

#include "base/util.h"
#include "core/fuse/uses.h"
#include "gen/nmp_schema.h"

#define OPS_MAX 6
#define BETWEEN 65536u  /* bytes of rows between two ops: a part of a second-level cache */
#define COPY 32768u     /* bytes of a result that may be copied at the end */
#define WEIGHTS 131072u /* bytes of a convolution: they are read anew each time */

/* One image of so many rows. */
static int has_rows(const nmp_tensor *t, int32_t rows) {
  return t->rank == 4 && t->shape[0] == 1 && t->shape[1] == rows;
}

static size_t row_bytes(const nmp_tensor *t) {
  return nmp_tensor_bytes(t) / (size_t)t->shape[1];
}

/* A convolution of several rows that can be computed row by row, with few weights. */
static int is_by_rows(const nmp_op *op, nmp_conv_call *call) {
  if (op->type->run != nmp_conv_run) {
    return 0;
  }
  *call = nmp_conv_decide(op);
  const nmp_axis *v = &call->conv.v;
  const int seen = nmp_pixel(v, 0, v->kernel - 1) >= 0 && nmp_pixel(v, v->out - 1, 0) < v->in;
  return call->kernel->rows && call->copy == 0 && v->out > 1 && has_rows(&op->out[0], v->out) && seen &&
         nmp_tensor_bytes(&op->in[1]) <= WEIGHTS;
}

/* Row r of the result is computed from row r of each operand that has rows. */
static int goes_by_rows(const nmp_op *op, int32_t rows) {
  int fits = op->type->by_rows && has_rows(&op->out[0], rows);
  for (uint32_t k = 0; k < op->input_count && fits; k++) {
    const nmp_tensor *x = &op->in[k];
    fits = has_rows(x, rows) || x->rank < 3 || x->shape[x->rank - 3] == 1;
  }
  return fits;
}

static int reads(const nmp_model *m, uint32_t op, uint32_t tensor) {
  const fb_vector inputs = fb_op_inputs(fb_element(m->ops, op));
  int found = 0;
  for (uint32_t k = 0; k < inputs.count && k < NMP_OP_INPUTS_MAX; k++) {
    found |= (uint32_t)fb_int_element(inputs, k) == tensor;
  }
  return found;
}

/* n rows of a tensor, at data. */
static void narrow(nmp_tensor *t, size_t n, void *data) {
  t->size = (uint32_t)(t->size / (size_t)t->shape[1] * n);
  t->shape[1] = (int32_t)n;
  t->data = data;
}

/* Rows [first, first + n) of an op by rows; x: those that the op before it has just made. */
static void run_op(const nmp_op *op, const nmp_op *before, void *x, size_t first, size_t n, void *y) {
  static const nmp_options alone = {.threads = 1};
  const int32_t rows = op->out[0].shape[1];
  nmp_op part = *op;
  part.threads = &alone;
  narrow(&part.out[0], n, y);
  for (uint32_t k = 0; k < op->input_count; k++) {
    const nmp_tensor *t = &op->in[k];
    if (has_rows(t, rows)) {
      const int made = !t->is_const && t->offset == before->out[0].offset;
      narrow(&part.in[k], n, made ? x : (uint8_t *)t->data + first * row_bytes(t));
    }
  }
  op->type->run(&part);
}

/* Rows [first, first + n) of the result, which begins at `result`. */
static void run_rows(const nmp_step *steps, uint8_t *result, uint8_t *scratch, size_t first, size_t n) {
  const nmp_fused *fused = &steps->fused;
  const size_t buffer = fused->by_rows.buffer;
  void *x = NULL;
  for (uint32_t i = 0; i < fused->count; i++) {
    const nmp_step *s = &steps[i];
    uint8_t *y = i + 1 < fused->count ? scratch + i % 2 * buffer : result + first * row_bytes(&s->op.out[0]);
    if (s->op.type->conv) {
      nmp_conv c = s->call.conv;
      c.x = i > 0 ? x : c.x;
      c.y = y;
      c.scratch = scratch + 2 * buffer;
      s->call.kernel->rows(&c, i > 0 ? 0 : first, i > 0 ? n : first + n);
    } else {
      run_op(&s->op, &steps[i - 1].op, x, first, n, y);
    }
    x = y;
  }
}

static const nmp_tensor *result_of(const nmp_step *first) {
  return &first[first->fused.count - 1].op.out[0];
}

/* Place that the result is written to: its own, or behind the scratch of all workers. */
static uint8_t *place_of(const nmp_step *first) {
  const nmp_fused *fused = &first->fused;
  const size_t copy = fused->by_rows.copy;
  return copy ? fused->scratch + fused->bytes - copy : (uint8_t *)result_of(first)->data;
}

static void run_task(void *context, size_t task, size_t worker) {
  const nmp_step *first = (const nmp_step *)context;
  const struct nmp_by_rows *r = &first->fused.by_rows;
  const size_t last = r->rows * (task + 1) / r->tasks;
  for (size_t row = r->rows * task / r->tasks, n; row < last; row += n) {
    n = r->at_once < last - row ? r->at_once : last - row;
    run_rows(first, place_of(first), first->fused.scratch + worker * r->worker, row, n);
  }
}

static void fuse_rows_run(const nmp_step *first) {
  const nmp_options *threads = first->op.threads;
  threads->parallel(threads->pool, run_task, (void *)(uintptr_t)first, first->fused.by_rows.tasks);
  if (first->fused.by_rows.copy) {
    memcpy(result_of(first)->data, place_of(first), first->fused.by_rows.copy);
  }
}

/* Needs of the ops. */
typedef struct needs {
  size_t between, scratch; /* bytes: of a row; of a kernel */
  size_t tasks;
} needs;

static void add_conv(needs *n, const nmp_conv_call *call) {
  n->scratch = nmp_max(n->scratch, call->worker);
  n->tasks = nmp_max(n->tasks, call->tasks);
}

/* Divides the rows. */
static nmp_fused divide(size_t rows, size_t copy, const needs *n, const nmp_options *threads) {
  const size_t most = BETWEEN / n->between;
  nmp_fused fused = {.run = fuse_rows_run};
  struct nmp_by_rows *r = &fused.by_rows;
  r->tasks = n->tasks < rows ? n->tasks : rows;
  r->rows = rows;
  r->at_once = most < 1 ? 1 : most < rows ? most : rows;
  r->buffer = nmp_round_up(r->at_once * n->between, NMP_CACHE_LINE);
  r->worker = 2 * r->buffer + nmp_round_up(n->scratch, NMP_CACHE_LINE);
  r->copy = copy;
  fused.bytes = r->worker * threads->threads + copy;
  return fused;
}

/* The result must not be written before everything is read: it shares bytes with what one of the ops reads, other
 * than with an operand whose rows are read as the result's are written.
 */
static int is_late(const nmp_op *ops, uint32_t count) {
  const nmp_tensor *y = &ops[count - 1].out[0];
  int late = 0;
  for (uint32_t i = 0; i < count; i++) {
    for (uint32_t k = 0; k < ops[i].input_count && k < NMP_OP_INPUTS_MAX; k++) {
      const nmp_tensor *x = &ops[i].in[k];
      const int same =
          i > 0 && x->offset == y->offset && nmp_tensor_bytes(x) == nmp_tensor_bytes(y) && has_rows(x, y->shape[1]);
      const int inside = i > 0 && x->offset == ops[i - 1].out[0].offset && !x->is_const; /* it is not in the arena */
      late |= !same && !inside && nmp_share_bytes(x, y);
    }
  }
  return late;
}

/* Op `count` behind the first one goes on with rows of what the one before it made, for nobody else. */
static int goes_on(const nmp_model *m, const nmp_op *ops, uint32_t op, uint32_t count, const nmp_conv *conv,
                   uint64_t *budget) {
  return reads(m, op + count, nmp_model_output_of(m, op + count - 1)) &&
         (conv ? nmp_conv_is_product(conv) : goes_by_rows(&ops[count], ops[0].out[0].shape[1])) &&
         !nmp_is_wanted(m, op + count - 1, op + count, budget);
}

/* Rows that go through several ops, for several threads. */
nmp_fused nmp_fuse_rows(const nmp_model *m, uint32_t op, uint64_t *budget) {
  const uint32_t most = m->options->parallel && m->options->threads > 1 ? m->ops.count - op : 0;
  nmp_fused fused = {.count = 1};
  nmp_op ops[OPS_MAX];
  needs n = {0, 0, 1};
  for (uint32_t count = 0; count < OPS_MAX && count < most; count++) {
    nmp_op *next = &ops[count];
    nmp_conv_call call;
    nmp_model_op(m, op + count, next);
    const int is_conv = is_by_rows(next, &call);
    if (count == 0 ? !is_conv : !goes_on(m, ops, op, count, is_conv ? &call.conv : NULL, budget)) {
      break;
    }
    if (is_conv) {
      add_conv(&n, &call);
    }
    if (count > 0) {
      n.between = nmp_max(n.between, row_bytes(&ops[count - 1].out[0]));
      const size_t copy = is_late(ops, count + 1) ? nmp_tensor_bytes(&next->out[0]) : 0;
      if (n.tasks > 1 && copy <= COPY) {
        fused = divide((size_t)ops[0].out[0].shape[1], copy, &n, m->options);
        fused.count = count + 1;
      }
    }
  }
  return fused;
}
#endif
