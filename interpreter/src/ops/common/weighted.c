#include "ops/common/weighted.h"

#include <string.h>

#include "base/util.h"
#include "ops/common/overlap.h"

static int base_shift(const nmp_op *op) {
  return op->out[0].exponent - op->in[0].exponent;
}

nmp_rule nmp_check_weights(const nmp_op *op, int64_t out, int64_t k) {
  const nmp_tensor *w = &op->in[1], *b = &op->in[2];
  NMP_REQUIRE(w->is_const, "constant weights", 0, 1);
  NMP_REQUIRE(w->bits == 8 || w->bits == 16, "bits of the weights", w->bits, 16);
  NMP_REQUIRE_BUILT(NMP_WIDE_WEIGHT(w->bits) == (w->bits == 16), "bits of the weights in this build", w->bits,
                    NMP_WEIGHT_BITS);
  NMP_COMPARE(w->axis, <=, 0, "axis of the exponents of the weights");
  NMP_COMPARE(k, <=, NMP_K_MAX, "products of a sum");
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
    c->kernels = op->kernels;
  }
  c->k = 1;
  for (uint32_t i = 1; i < w->rank; i++) {
    c->k *= (uint32_t)w->shape[i];
  }
  c->x_wide = NMP_WIDE(x->bits);
  c->w_wide = NMP_WIDE_WEIGHT(w->bits);
  c->y_wide = NMP_WIDE(y->bits);
  c->bias_bits = b->bits;
#if NMP_CONV_ADD
  c->adds = op->type->adds;
#endif
#if NMP_TWO_MEMORIES
  c->slow = op->slow;
#endif
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
  c->scratch = op->scratch;
  if (NMP_CONV_OVERLAP) {
    c->over = (int64_t)y->offset - x->offset;
  }
}

nmp_rule nmp_conv_check(const nmp_conv *c) {
  NMP_REQUIRE_BUILT(nmp_conv_knows_range(c), "a range of results", c->lo, c->hi);
  NMP_REQUIRE_BUILT(NMP_IN_USE(c->kernels).conv(c) != NULL, "a convolution that vectors do not compute", 0, 0);
  return NMP_FINE;
}

int nmp_op_is_portable(const nmp_op *op) {
  nmp_conv c;
  if (op->type->conv == NULL) {
    return 0;
  }
  op->type->conv(op, &c);
  return NMP_IN_USE(c.kernels).conv(&c) == nmp_conv_portable(&c);
}

static size_t input_bytes(const nmp_op *op) {
  return op->in[0].size * nmp_bytes(&op->in[0]);
}

/* The result shares bytes with the input. */
static int overlaps(const nmp_op *op) {
  const nmp_tensor *x = &op->in[0], *y = &op->out[0];
  return NMP_CONV_OVERLAP && op->type->overlap && x->offset < y->offset + y->size * nmp_bytes(y) &&
         y->offset < x->offset + input_bytes(op);
}

static size_t worker_bytes(const nmp_conv_call *call) {
  return call->kernel->scratch ? nmp_round_up(call->kernel->scratch(&call->conv), NMP_CACHE_LINE) : 0;
}

#if NMP_KEEP_STEPS
size_t nmp_conv_tasks(const nmp_op *op, const nmp_conv_call *call) {
  const nmp_options *t = op->threads;
  return t->parallel && t->threads > 1 && call->kernel->tasks ? call->kernel->tasks(&call->conv, t->threads) : 1;
}

nmp_conv_call nmp_conv_decide(const nmp_op *op) {
  nmp_conv_call call;
  nmp_conv *c = &call.conv;
  op->type->conv(op, c);
  c->packed = NULL;
  const int over = overlaps(op), copied = over && nmp_overlap_packs(c);
  call.kernel = over && !copied ? &nmp_overlap_kernel : NMP_IN_USE(c->kernels).conv(c);
  call.tasks = nmp_conv_tasks(op, &call);
  call.worker = worker_bytes(&call);
  call.copy = copied ? input_bytes(op) : 0;
  return call;
}

size_t nmp_conv_scratch(const nmp_op *op) {
  const nmp_conv_call call = nmp_conv_decide(op);
  return nmp_round_up(call.copy, NMP_CACHE_LINE) + (call.tasks > 1 ? op->threads->threads : 1) * call.worker;
}

size_t nmp_conv_packed(const nmp_conv_call *call) {
  return call->kernel->packed ? call->kernel->packed(&call->conv) : 0;
}

size_t nmp_op_packed(const nmp_op *op) {
  if (op->type->conv == NULL) {
    return 0;
  }
  const nmp_conv_call call = nmp_conv_decide(op);
  return nmp_conv_packed(&call);
}

void nmp_conv_pack(nmp_conv_call *call, void *to) {
  if (call->kernel->pack) {
    call->kernel->pack(&call->conv, to);
    call->conv.packed = to;
  }
}

static void run_task(void *context, size_t task, size_t worker) {
  const nmp_conv_call *call = (const nmp_conv_call *)context;
  nmp_conv c = call->conv;
  c.scratch = (uint8_t *)c.scratch + worker * call->worker;
  call->kernel->run(&c, task, call->tasks);
}

void nmp_conv_call_run(const nmp_conv_call *call, const nmp_options *threads) {
  nmp_conv_call apart;
  if (call->copy) {
    apart = *call;
    apart.conv.x = memcpy(call->conv.scratch, call->conv.x, call->copy);
    apart.conv.scratch = (uint8_t *)call->conv.scratch + nmp_round_up(call->copy, NMP_CACHE_LINE);
    call = &apart;
  }
  if (call->tasks > 1) {
    threads->parallel(threads->pool, run_task, (void *)(uintptr_t)call, call->tasks);
  } else {
    call->kernel->run(&call->conv, 0, 1);
  }
}

void nmp_conv_run(const nmp_op *op) {
  nmp_conv_call_run(op->call, op->threads);
}
#else
static void decide(const nmp_op *op, nmp_conv_call *call) {
  op->type->conv(op, &call->conv);
  call->kernel = overlaps(op) ? &nmp_overlap_kernel : NMP_IN_USE(call->conv.kernels).conv(&call->conv);
}

size_t nmp_conv_scratch(const nmp_op *op) {
  nmp_conv_call call;
  decide(op, &call);
  return worker_bytes(&call);
}

#if NMP_TWO_MEMORIES
#define MANY_PIXELS 32 /* as in nmpconv/ops/common/weighted.py */

/* Weights are read for every few pixels: the plan has left room behind the scratch for those that are copied first. */
static void copy_weights(const nmp_op *op, nmp_conv_call *call) {
  nmp_conv *c = &call->conv;
  const size_t scratch = worker_bytes(call), bytes = (size_t)c->out * c->k << nmp_w_wide(c);
  const int many = nmp_conv_pixels(c) >= MANY_PIXELS && !nmp_conv_is_depthwise(c);
  if (many && scratch + bytes <= op->scratch_room) {
    c->w = memcpy((uint8_t *)c->scratch + scratch, c->w, bytes);
  }
}
#endif

void nmp_conv_run(const nmp_op *op) {
  nmp_conv_call call;
  decide(op, &call);
#if NMP_TWO_MEMORIES
  copy_weights(op, &call);
#endif
  call.kernel->run(&call.conv, 0, 1);
}
#endif
