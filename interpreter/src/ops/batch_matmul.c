/* a [..., M, K], b [..., N, K] -> [..., M, N]: y[m, n] = sat(rsh(sum over k of a[m, k] * b[n, k], e_y - e_a - e_b)). */
#include <string.h>

#include "conv/conv.h"
#include "ops/common/check.h"

static int shift(const nmp_op *op) {
  return op->out[0].exponent - op->in[0].exponent - op->in[1].exponent;
}

/* The matrices of the operands that one of the output is made of: their first elements. */
static void operands(const nmp_op *op, size_t matrix, size_t *a_at, size_t *b_at) {
  const nmp_tensor *a = &op->in[0], *b = &op->in[1], *y = &op->out[0];
  const uint32_t batch = y->rank - 2u; /* axes */
  size_t a_stride = (size_t)a->shape[batch] * (size_t)a->shape[batch + 1],
         b_stride = (size_t)b->shape[batch] * (size_t)b->shape[batch + 1];
  *a_at = *b_at = 0;
  for (uint32_t axis = batch; axis-- > 0;) {
    const size_t at = matrix % (size_t)y->shape[axis];
    matrix /= (size_t)y->shape[axis];
    *a_at += a->shape[axis] == 1 ? 0 : at * a_stride;
    *b_at += b->shape[axis] == 1 ? 0 : at * b_stride;
    a_stride *= (size_t)a->shape[axis];
    b_stride *= (size_t)b->shape[axis];
  }
}

static size_t matrices_of(const nmp_op *op) {
  const nmp_tensor *y = &op->out[0];
  return y->size / ((size_t)y->shape[y->rank - 2] * (size_t)y->shape[y->rank - 1]);
}

#define FEW 2         /* matrices of a thread, up to which one more or less counts */
#define PACKED_ROWS 4 /* of a, from which on b is worth an order of its own */

/* One product of two matrices as a fully connected layer whose weights are only known now. Its kernel reads b where it
 * lies, as microcontrollers do, or packs it.
 */
typedef struct products {
  const nmp_op *op;
  nmp_conv conv; /* but for the addresses of its tensors */
  const nmp_conv_kernel *kernel;
  size_t matrices, parts;       /* of the output; shares of each, which are tasks */
  size_t unit;                  /* bytes: that packed weights are aligned to */
  size_t zeros, packed, worker; /* bytes of the scratch: biases; weights, and all of a worker */
} products;

static size_t workers_of(const nmp_op *op) {
  return NMP_KEEP_STEPS && op->threads->parallel ? nmp_max(op->threads->threads, 1) : 1;
}

/* Weights have an order of the kernel's own, as they have nowhere that keeps no steps. */
static int packs(const nmp_conv_kernel *kernel) {
  return NMP_KEEP_STEPS && kernel->packed;
}

/* Shares of each matrix, so that threads have the same number of them where matrices are few. */
static size_t parts_of(size_t matrices, size_t threads) {
  const size_t parts = (threads + matrices - 1) / matrices;
  return matrices % threads == 0 || matrices > FEW * threads ? 1 : nmp_max(parts, FEW);
}

/* kernel NULL: this build has none. */
static void products_of(const nmp_op *op, products *p) {
  static const int8_t exponent = 0;
  const nmp_tensor *a = &op->in[0], *b = &op->in[1], *y = &op->out[0];
  const size_t threads = workers_of(op);
  nmp_conv *c = &p->conv;
  memset(p, 0, sizeof(*p)); /* in place, since stacks are small */
  p->op = op;
  p->matrices = matrices_of(op);
  c->v = nmp_axis_of_pixels(1);
  c->h = nmp_axis_of_pixels(y->shape[y->rank - 2]);
  c->images = c->groups = 1;
  c->in = c->k = (uint32_t)a->shape[a->rank - 1];
  c->out = c->pitch = (uint32_t)b->shape[b->rank - 2];
  c->x_wide = NMP_WIDE(a->bits);
  c->w_wide = NMP_WIDE_WEIGHT(b->bits);
  c->y_wide = NMP_WIDE(y->bits);
  c->bias_bits = 8;
  c->exponents = &exponent;
  c->shift = shift(op);
  c->lo = y->lo;
  c->hi = y->hi;
  c->kernels = op->kernels;
  p->kernel = NMP_IN_USE(op->kernels).conv(c);
  p->parts = 1;
  if (p->kernel == NULL) {
    return;
  }
  if (packs(p->kernel) && c->h.out < PACKED_ROWS) {
    p->kernel = nmp_conv_portable(c);
  }
  const int shares = NMP_KEEP_STEPS && p->kernel->tasks;
  p->parts = shares ? nmp_min(parts_of(p->matrices, threads), p->kernel->tasks(c, threads)) : 1;
  p->unit = packs(p->kernel) ? NMP_CACHE_LINE : 16;
  p->zeros = nmp_round_up(c->out, p->unit);
  p->packed = packs(p->kernel) ? nmp_round_up(p->kernel->packed(c), p->unit) : 0;
  p->worker = p->packed + (p->kernel->scratch ? nmp_round_up(p->kernel->scratch(c), p->unit) : 0);
}

static size_t batch_matmul_scratch(const nmp_op *op) {
  products p;
  products_of(op, &p);
  return (p.packed ? p.unit : 0) + p.zeros + workers_of(op) * p.worker;
}

/* Share `part` of matrix `matrix`; what packs b does so anew unless it is that of `before`. */
static void run_product(const products *p, size_t matrix, size_t part, uint8_t *scratch, size_t *before) {
  const nmp_op *op = p->op;
  const nmp_tensor *y = &op->out[0];
  nmp_conv c = p->conv;
  size_t a_at, b_at;
  operands(op, matrix, &a_at, &b_at);
  c.x = nmp_at(&op->in[0], a_at);
  c.w = nmp_at(&op->in[1], b_at);
  c.y = nmp_at(y, matrix * (y->size / p->matrices));
  c.packed = scratch;
  c.scratch = scratch + p->packed;
  if (packs(p->kernel) && b_at != *before) {
    p->kernel->pack(&c, scratch);
    *before = b_at;
  }
  p->kernel->run(&c, part, p->parts);
}

static uint8_t *scratch_of(const products *p) {
  return (uint8_t *)p->op->scratch + (p->unit - (uintptr_t)p->op->scratch % p->unit) % p->unit;
}

static void run_task(void *context, size_t task, size_t worker) {
  const products *p = (const products *)context;
  size_t none = SIZE_MAX;
  run_product(p, task / p->parts, task % p->parts, scratch_of(p) + p->zeros + worker * p->worker, &none);
}

static void run_products(products *p) {
  uint8_t *scratch = scratch_of(p);
  p->conv.bias = memset(scratch, 0, p->zeros);
  if (workers_of(p->op) > 1 && p->matrices * p->parts > 1) {
    p->op->threads->parallel(p->op->threads->pool, run_task, p, p->matrices * p->parts);
    return;
  }
  size_t before = SIZE_MAX;
  for (size_t i = 0; i < p->matrices; i++) {
    run_product(p, i, 0, scratch + p->zeros, &before);
  }
}

static nmp_rule batch_matmul_check(const nmp_op *op) {
  NMP_TRY(nmp_check_inputs(op, 2, 2, 2));
  const nmp_tensor *a = &op->in[0], *b = &op->in[1], *y = &op->out[0];
  const uint32_t rank = a->rank;
  NMP_COMPARE(rank, >=, 2, "rank");
  NMP_COMPARE(b->rank, ==, rank, "rank of the second input");
  NMP_COMPARE(y->rank, ==, rank, "rank of the output");
  for (uint32_t i = 0; i + 2 < rank; i++) {
    const int32_t m = a->shape[i], n = b->shape[i], most = m > n ? m : n;
    NMP_REQUIRE(m == n || m == 1 || n == 1, "dimensions that do not broadcast", m, n);
    NMP_COMPARE(y->shape[i], ==, most, "dimension of the output");
  }
  NMP_COMPARE(y->shape[rank - 2], ==, a->shape[rank - 2], "rows");
  NMP_COMPARE(y->shape[rank - 1], ==, b->shape[rank - 2], "columns");
  NMP_COMPARE(b->shape[rank - 1], ==, a->shape[rank - 1], "products of a sum");
  NMP_COMPARE(a->shape[rank - 1], <=, NMP_K_MAX, "products of a sum");
  NMP_REQUIRE_BUILT(a->shape[rank - 1] <= NMP_CONV_K_MAX, "products of a sum in this build", a->shape[rank - 1],
                    NMP_CONV_K_MAX);
  NMP_REQUIRE_BUILT(NMP_WIDE_WEIGHT(b->bits) == (b->bits == 16), "bits of the weights in this build", b->bits,
                    NMP_WEIGHT_BITS);
  NMP_TRY(nmp_check_shift(shift(op)));
  products p;
  products_of(op, &p);
  NMP_REQUIRE_BUILT(nmp_conv_knows_range(&p.conv), "a range of results", y->lo, y->hi);
  NMP_REQUIRE_BUILT(p.kernel != NULL, "a product that vectors do not compute", 0, 0);
  return NMP_FINE;
}

static uint64_t batch_matmul_work(const nmp_op *op) {
  return (uint64_t)op->out[0].size * (uint32_t)op->in[0].shape[op->in[0].rank - 1];
}

static void batch_matmul_run(const nmp_op *op) {
  products p;
  products_of(op, &p);
  run_products(&p);
}

const nmp_op_type nmp_batch_matmul_type = {
    .check = batch_matmul_check, .scratch = batch_matmul_scratch, .run = batch_matmul_run, .work = batch_matmul_work};
