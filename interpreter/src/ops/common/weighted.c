#include "ops/common/weighted.h"

static int base_shift(const nmp_op *op) {
  return op->out[0].exponent - op->in[0].exponent;
}

nmp_rule nmp_check_weights(const nmp_op *op, int64_t out, int64_t k) {
  const nmp_tensor *w = &op->in[1], *b = &op->in[2];
  NMP_REQUIRE(w->is_const, "constant weights", 0, 1);
  NMP_REQUIRE(w->bits == 8 || w->bits == 16, "bits of the weights", w->bits, 16);
  NMP_REQUIRE_BUILT(NMP_WIDE_WEIGHT(w->bits) == (w->bits == 16), "bits of the weights in this build", w->bits,
                    NMP_WEIGHT_BITS);
  NMP_REQUIRE(w->exponent_count == 1 || (w->axis == 0 && w->exponent_count == (uint32_t)out),
              "exponents of the weights", w->exponent_count, out);
  NMP_REQUIRE(k <= NMP_K_MAX, "products of a sum", k, NMP_K_MAX);
  NMP_REQUIRE_BUILT(k <= NMP_CONV_K_MAX, "products of a sum in this build", k, NMP_CONV_K_MAX);
  for (uint32_t c = 0; c < w->exponent_count; c++) {
    NMP_TRY(nmp_check_shift(base_shift(op) - w->exponents[c]));
  }
  return nmp_check_vector(b, out, b->bits, op->out[0].exponent);
}

void nmp_conv_fill(nmp_conv *c, const nmp_op *op) {
  const nmp_tensor *x = &op->in[0], *w = &op->in[1], *b = &op->in[2], *y = &op->out[0];
  c->in = (uint32_t)x->shape[x->rank - 1];
  c->out = (uint32_t)w->shape[0];
  if (!NMP_FIXED_CPU) {
    c->pitch = c->out;
  }
  c->k = 1;
  for (uint32_t i = 1; i < w->rank; i++) {
    c->k *= (uint32_t)w->shape[i];
  }
  c->x_wide = NMP_WIDE(x->bits);
  c->w_wide = NMP_WIDE_WEIGHT(w->bits);
  c->y_wide = NMP_WIDE(y->bits);
  c->bias_bits = b->bits;
  c->x = x->data;
  c->w = w->data;
  c->bias = b->data;
  c->pad = op->input_count == 4 ? op->in[3].data : NULL;
  c->y = y->data;
  c->exponents = w->exponents;
  c->exponent_step = w->exponent_count > 1;
  c->shift = base_shift(op);
  c->lo = y->lo;
  c->hi = y->hi;
  c->kernels = op->kernels;
  c->scratch = op->scratch;
  c->packed = op->packed;
}

nmp_rule nmp_conv_check(const nmp_conv *c) {
  NMP_REQUIRE_BUILT(NMP_IN_USE(c->kernels).conv(c) != NULL, "a convolution that vectors do not compute", 0, 0);
  return NMP_FINE;
}

static size_t tasks_of(const nmp_op *op, const nmp_conv_kernel *kernel, const nmp_conv *c) {
  return op->threads->parallel && op->threads->threads > 1 && kernel->tasks ? kernel->tasks(c, op->threads->threads)
                                                                            : 1;
}

/* Tasks that run at the same time. */
static size_t workers_of(const nmp_op *op, size_t tasks) {
  return tasks > 1 ? op->threads->threads : 1;
}

/* Workers do not share lines of a cache. */
static size_t scratch_of(const nmp_conv_kernel *kernel, const nmp_conv *c) {
  return (kernel->scratch(c) + 63) / 64 * 64;
}

size_t nmp_conv_scratch(const nmp_op *op, const nmp_conv *c) {
  const nmp_conv_kernel *kernel = NMP_IN_USE(c->kernels).conv(c);
  return kernel->scratch ? workers_of(op, tasks_of(op, kernel, c)) * scratch_of(kernel, c) : 0;
}

size_t nmp_conv_packed(const nmp_conv *c) {
  const nmp_conv_kernel *kernel = NMP_IN_USE(c->kernels).conv(c);
  return kernel->packed ? kernel->packed(c) : 0;
}

void nmp_conv_pack(const nmp_conv *c, void *to) {
  NMP_IN_USE(c->kernels).conv(c)->pack(c, to);
}

/* What a task needs to find its share. */
typedef struct shares {
  const nmp_conv *conv;
  const nmp_conv_kernel *kernel;
  size_t tasks;
} shares;

static void run_share(void *context, size_t task, size_t worker) {
  const shares *s = (const shares *)context;
  nmp_conv c = *s->conv;
  c.scratch = s->kernel->scratch ? (uint8_t *)c.scratch + worker * scratch_of(s->kernel, &c) : NULL;
  s->kernel->run(&c, task, s->tasks);
}

static void run_shares(const nmp_op *op, const nmp_conv *c, const nmp_conv_kernel *kernel, size_t tasks) {
  if (tasks > 1) {
    shares s = {c, kernel, tasks};
    op->threads->parallel(op->threads->pool, run_share, &s, tasks);
  } else {
    kernel->run(c, 0, 1);
  }
}

void nmp_conv_run(const nmp_op *op, const nmp_conv *c) {
  const nmp_conv_kernel *kernel = NMP_IN_USE(c->kernels).conv(c);
  run_shares(op, c, kernel, tasks_of(op, kernel, c));
}

#define PREPARED ((sizeof(nmp_prepared) + 63) / 64 * 64)

size_t nmp_conv_prepared(const nmp_conv *c) {
  return PREPARED + nmp_conv_packed(c);
}

void nmp_conv_prepare(const nmp_op *op, const nmp_conv *c, void *to) {
  nmp_prepared *p = (nmp_prepared *)to;
  p->conv = *c;
  p->conv.packed = (uint8_t *)to + PREPARED;
  p->kernel = NMP_IN_USE(c->kernels).conv(c);
  p->tasks = tasks_of(op, p->kernel, c);
  if (p->kernel->pack) {
    p->kernel->pack(c, (uint8_t *)to + PREPARED);
  }
}

void nmp_conv_run_prepared(const nmp_op *op) {
  const nmp_prepared *p = (const nmp_prepared *)op->packed;
  run_shares(op, &p->conv, p->kernel, p->tasks);
}

void nmp_conv_run_into(const nmp_op *op, void *y, uint32_t pitch, void *scratch) {
  const nmp_prepared *p = (const nmp_prepared *)op->packed;
  nmp_conv c = p->conv;
  c.y = y;
  c.pitch = pitch;
  c.scratch = scratch;
  run_shares(op, &c, p->kernel, p->tasks);
}
