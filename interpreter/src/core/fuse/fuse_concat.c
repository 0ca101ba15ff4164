#include "core/fuse/fuse_concat.h"

#if NMP_KEEP_STEPS
#include "core/fuse/uses.h"
#include "gen/nmp_schema.h"

#define CONVS_MAX 8
#define INPUTS_MAX 32 /* of nmp_op.placed */
#define CHANNELS 3    /* the axis */

static int is_pitched(const nmp_op *op) {
  if (op->type->run != nmp_conv_run) {
    return 0;
  }
  const nmp_conv_call call = nmp_conv_decide(op);
  return call.kernel->pitched && call.copy == 0;
}

static int touches(const nmp_op *op, const nmp_tensor *y) {
  return nmp_share_bytes(&op->in[0], y) || nmp_share_bytes(&op->out[0], y);
}

/* Number of the input of the concatenation that a tensor is; its count for none, or for one that comes twice. */
static uint32_t input_of(const nmp_model *m, uint32_t concat, uint32_t tensor) {
  const fb_vector inputs = fb_op_inputs(fb_element(m->ops, concat));
  uint32_t found = inputs.count, times = 0;
  for (uint32_t k = 0; k < inputs.count; k++) {
    if ((uint32_t)fb_int_element(inputs, k) == tensor) {
      found = k;
      times++;
    }
  }
  return times == 1 ? found : inputs.count;
}

static void fuse_concat_run(const nmp_step *first) {
  const uint32_t convs = first->fused.count - 1;
  nmp_op concat = first[convs].op;
  const nmp_tensor *y = &concat.out[0];
  size_t channel = 0;
  for (uint32_t k = 0; k < concat.input_count; k++) {
    nmp_tensor x;
    concat.input_at(&concat, k, &x);
    for (uint32_t i = 0; i < convs; i++) {
      if (first[i].op.out[0].data == x.data) {
        nmp_conv_call call = first[i].call;
        call.conv.y = nmp_at(y, channel);
        call.conv.pitch = (uint32_t)y->shape[CHANNELS];
        call.conv.scratch = first->fused.scratch;
        nmp_conv_call_run(&call, concat.threads);
        concat.placed |= 1u << k;
      }
    }
    channel += (size_t)x.shape[CHANNELS];
  }
  concat.type->run(&concat);
}

nmp_fused nmp_fuse_concat(const nmp_model *m, uint32_t op, uint64_t *budget) {
  const nmp_fused none = {.count = 1};
  nmp_fused fused = {.run = fuse_concat_run};
  uint32_t last = op;
  nmp_op next;
  nmp_model_op(m, op, &next);
  for (; last - op < CONVS_MAX && is_pitched(&next) && last + 1 < m->ops.count; last++) {
    nmp_model_op(m, last + 1, &next);
  }
  if (last == op || next.type != nmp_op_table[NMP_OP_CONCAT] || next.out[0].rank != 4 ||
      next.params.concat.axis != CHANNELS || next.input_count > INPUTS_MAX) {
    return none;
  }
  for (uint32_t i = op; i < last; i++) {
    nmp_op conv;
    nmp_model_op(m, i, &conv);
    if (input_of(m, last, nmp_model_output_of(m, i)) == next.input_count || touches(&conv, &next.out[0]) ||
        nmp_is_wanted(m, i, last, budget)) {
      return none;
    }
    const size_t bytes = conv.type->scratch(&conv);
    fused.bytes = bytes > fused.bytes ? bytes : fused.bytes;
  }
  fused.count = last - op + 1;
  return fused;
}
#endif
