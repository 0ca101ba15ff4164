#include "ops/common/added.h"

#if NMP_CONV_ADD
#include <string.h>

#if !NMP_FIXED_CPU /* else all kernels of dense convolutions add */
void nmp_added_conv(const nmp_op *op, nmp_conv *c) {
  nmp_conv2d_conv(op, c);
  if (NMP_CONV_ADD > 1 || !NMP_IN_USE(c->kernels).conv(c)->adds) {
    c->adds = 0;
    c->y_wide = 1;
    c->lo = INT16_MIN;
    c->hi = INT16_MAX;
  }
}

static size_t apart_bytes(const nmp_op *op) {
  return nmp_round_up(op->out[0].size * sizeof(int16_t), NMP_CACHE_LINE);
}

size_t nmp_added_scratch(const nmp_op *op) {
  nmp_conv c = {.adds = 0};
  if (NMP_CONV_ADD == 1) {
    nmp_added_conv(op, &c);
  }
  return nmp_conv_scratch(op) + (c.adds ? 0 : apart_bytes(op));
}

static void run_apart(const nmp_op *op) {
  const nmp_tensor *y = &op->out[0];
  const nmp_binary how = {.a_step = 1, .b_step = 1, .lo = y->lo, .hi = y->hi};
  nmp_conv_call call = *op->call;
  call.conv.y = op->scratch;
  call.conv.scratch = (uint8_t *)op->scratch + apart_bytes(op);
  nmp_conv_call_run(&call, op->threads);
  NMP_IN_USE(op->kernels).add[1][0][0](y->data, op->scratch, op->added.data, y->size, &how);
}
#endif

void nmp_added_run(const nmp_op *op) {
  const nmp_tensor *r = &op->added, *y = &op->out[0];
#if !NMP_FIXED_CPU
  if (!nmp_conv_adds(&op->call->conv)) {
    run_apart(op);
    return;
  }
#endif
  if (r->data != y->data) {
    memcpy(y->data, r->data, r->size);
  }
  nmp_conv_run(op);
}
#endif
