#include "core/fuse/fuse_rows.h"

#include <string.h>

#include "core/fuse/uses.h"
#include "gen/nmp_schema.h"
#include "ops/common/weighted.h"

#define OPS_MAX 6
#define BETWEEN 65536u  /* bytes of rows between two ops: a part of a second-level cache */
#define COPY 32768u     /* bytes of a result that may be copied at the end */
#define WEIGHTS 131072u /* bytes of a convolution: they are read anew for each step */

/* One image of so many rows. */
static int has_rows(const nmp_tensor *t, int32_t rows) {
  return t->rank == 4 && t->shape[0] == 1 && t->shape[1] == rows;
}

static size_t row_bytes(const nmp_tensor *t) {
  return nmp_tensor_bytes(t) / (size_t)t->shape[1];
}

/* A convolution that can be computed row by row, with few weights. */
static int is_by_rows(const nmp_op *op, nmp_conv *c) {
  if (op->kind != NMP_OP_CONV2D || !nmp_conv_is_prepared(op)) {
    return 0;
  }
  *c = nmp_conv_of(op);
  const int seen = nmp_pixel(&c->v, 0, c->v.kernel - 1) >= 0 && nmp_pixel(&c->v, c->v.out - 1, 0) < c->v.in;
  return op->kernels->conv(c)->rows && c->images == 1 && seen && nmp_tensor_bytes(&op->in[1]) <= WEIGHTS;
}

/* Row r of the result is computed from row r of each operand that has rows. */
static int goes_by_rows(const nmp_op *op, int32_t rows) {
  int fits = nmp_op_table[op->kind]->by_rows && has_rows(&op->out[0], rows);
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

static size_t larger(size_t a, size_t b) {
  return a > b ? a : b;
}

/* What a chain needs of its ops. */
typedef struct needs {
  size_t between, scratch; /* bytes: of a row; of a kernel */
  size_t tasks;
} needs;

static void add_conv(needs *n, const nmp_op *op, const nmp_conv *c) {
  const nmp_conv_kernel *kernel = op->kernels->conv(c);
  n->scratch = larger(n->scratch, kernel->scratch ? kernel->scratch(c) : 0);
  n->tasks = larger(n->tasks, kernel->tasks ? kernel->tasks(c, op->threads->threads) : 1);
}

static size_t align(size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

/* How the rows are divided. */
static void divide(nmp_chain *chain, const needs *n, const nmp_options *threads) {
  const size_t step = BETWEEN / n->between;
  chain->tasks = (uint32_t)(n->tasks < chain->rows ? n->tasks : chain->rows);
  chain->step = step < 1 ? 1 : step < chain->rows ? step : chain->rows;
  chain->buffer = align(chain->step * n->between);
  chain->worker = 2 * chain->buffer + align(n->scratch);
  chain->scratch = chain->worker * threads->threads;
}

/* The result must not be written before everything is read: it shares bytes with what an op of the chain reads, other
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
static int goes_on(const nmp_model *m, const nmp_op *ops, uint32_t op, uint32_t count, const nmp_conv *c, int is_conv,
                   uint64_t *budget) {
  return reads(m, op + count, nmp_model_output_of(m, op + count - 1)) &&
         (is_conv ? nmp_conv_is_product(c) : goes_by_rows(&ops[count], ops[0].out[0].shape[1])) &&
         !nmp_is_wanted(m, op + count - 1, op + count, budget);
}

/* Rows that go through several ops, for several threads. */
nmp_chain nmp_chain_rows_at(const nmp_model *m, const nmp_kernels *kernels, const nmp_options *threads, uint32_t op,
                            uint64_t *budget) {
  const uint32_t most = threads->parallel && threads->threads > 1 ? m->ops.count - op : 0;
  nmp_chain chain = {0};
  nmp_op ops[OPS_MAX];
  needs n = {0, 0, 1};
  for (uint32_t count = 0; count < OPS_MAX && count < most; count++) {
    nmp_op *next = &ops[count];
    nmp_conv c;
    *next = nmp_op_at(m, kernels, threads, op + count);
    const int is_conv = is_by_rows(next, &c);
    if (count == 0 ? !is_conv : !goes_on(m, ops, op, count, &c, is_conv, budget)) {
      break;
    }
    if (is_conv) {
      add_conv(&n, next, &c);
    }
    if (count > 0) {
      n.between = larger(n.between, row_bytes(&ops[count - 1].out[0]));
      const size_t copy = is_late(ops, count + 1) ? nmp_tensor_bytes(&next->out[0]) : 0;
      if (n.tasks > 1 && copy <= COPY) {
        chain.count = count + 1;
        chain.rows = (size_t)ops[0].out[0].shape[1];
        chain.copy = copy;
        divide(&chain, &n, threads);
      }
    }
  }
  return chain;
}

typedef struct context {
  const nmp_chain *chain;
  const nmp_op *ops;
  uint8_t *scratch, *y;
} context;

/* n rows of a tensor, at data. */
static void narrow(nmp_tensor *t, size_t n, void *data) {
  t->size = (uint32_t)(t->size / (size_t)t->shape[1] * n);
  t->shape[1] = (int32_t)n;
  t->data = data;
}

/* Rows [first, first + n) of an op by rows; x: those that the op before it has just made. */
static void run_op(const nmp_op *op, const nmp_op *before, void *x, size_t first, size_t n, void *y) {
  static const nmp_options alone = {NULL, NULL, NULL, 1};
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
  nmp_op_table[op->kind]->run(&part);
}

static void run_rows(const context *r, uint8_t *scratch, size_t first, size_t n) {
  const nmp_chain *chain = r->chain;
  void *x = NULL;
  for (uint32_t i = 0; i < chain->count; i++) {
    const nmp_op *op = &r->ops[i];
    uint8_t *y = i + 1 < chain->count ? scratch + i % 2 * chain->buffer : r->y + first * row_bytes(&op->out[0]);
    if (op->kind == NMP_OP_CONV2D) {
      const nmp_prepared *p = (const nmp_prepared *)op->packed;
      nmp_conv c = p->conv;
      c.x = i > 0 ? x : c.x;
      c.y = y;
      c.scratch = scratch + 2 * chain->buffer;
      p->kernel->rows(&c, i > 0 ? 0 : first, i > 0 ? n : first + n);
    } else {
      run_op(op, op - 1, x, first, n, y);
    }
    x = y;
  }
}

static void run_task(void *context_, size_t task, size_t worker) {
  const context *r = (const context *)context_;
  const nmp_chain *chain = r->chain;
  const size_t last = chain->rows * (task + 1) / chain->tasks;
  for (size_t row = chain->rows * task / chain->tasks, n; row < last; row += n) {
    n = chain->step < last - row ? chain->step : last - row;
    run_rows(r, r->scratch + worker * chain->worker, row, n);
  }
}

void nmp_chain_rows_run(const nmp_chain *chain, const nmp_op *ops, uint8_t *arena) {
  const nmp_tensor *y = &ops[chain->count - 1].out[0];
  uint8_t *scratch = arena + chain->at, *copy = scratch + chain->scratch;
  context r = {chain, ops, scratch, chain->copy ? copy : (uint8_t *)y->data};
  ops->threads->parallel(ops->threads->pool, run_task, &r, chain->tasks);
  if (chain->copy) {
    memcpy(y->data, copy, chain->copy);
  }
}
