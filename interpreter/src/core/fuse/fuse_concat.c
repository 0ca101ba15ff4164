#include "core/fuse/fuse_concat.h"

#include "core/fuse/uses.h"
#include "gen/nmp_schema.h"
#include "ops/common/weighted.h"

#define CONVS_MAX 8
#define INPUTS_MAX 32 /* of nmp_op.placed */
#define CHANNELS 3    /* the axis */

static int is_pitched(const nmp_op *op) {
  if (op->kind != NMP_OP_CONV2D || !nmp_conv_is_prepared(op)) {
    return 0;
  }
  const nmp_conv c = nmp_conv_of(op);
  return op->kernels->conv(&c)->pitched;
}

static int touches(const nmp_op *op, const nmp_tensor *y) {
  return nmp_share_bytes(&op->in[0], y) || nmp_share_bytes(&op->out[0], y);
}

/* Which input of the concatenation a tensor is; its count for none, or for one that comes twice. */
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

uint32_t nmp_views_at(const nmp_model *m, const nmp_kernels *kernels, const nmp_options *threads, uint32_t op,
                      uint64_t *budget, size_t *scratch) {
  uint32_t last = op;
  nmp_op next = nmp_op_at(m, kernels, threads, op);
  for (; last - op < CONVS_MAX && is_pitched(&next) && last + 1 < m->ops.count; last++) {
    next = nmp_op_at(m, kernels, threads, last + 1);
  }
  if (last == op || next.kind != NMP_OP_CONCAT || next.out[0].rank != 4 || next.params.concat.axis != CHANNELS ||
      next.input_count > INPUTS_MAX) {
    return 0;
  }
  for (uint32_t i = op; i < last; i++) {
    const nmp_op conv = nmp_op_at(m, kernels, threads, i);
    if (input_of(m, last, nmp_model_output_of(m, i)) == next.input_count || touches(&conv, &next.out[0]) ||
        nmp_is_wanted(m, i, last, budget)) {
      return 0;
    }
    const size_t bytes = nmp_op_table[conv.kind]->scratch(&conv);
    *scratch = bytes > *scratch ? bytes : *scratch;
  }
  return last - op + 1;
}

void nmp_views_run(const nmp_op *ops, uint32_t count, void *scratch) {
  nmp_op concat = ops[count - 1];
  const nmp_tensor *y = &concat.out[0];
  const uint32_t pitch = (uint32_t)y->shape[CHANNELS];
  size_t channel = 0;
  for (uint32_t k = 0; k < concat.input_count; k++) {
    nmp_tensor x;
    concat.input_at(&concat, k, &x);
    for (uint32_t i = 0; i + 1 < count; i++) {
      if (ops[i].out[0].data == x.data) {
        nmp_conv_run_into(&ops[i], nmp_at(y, channel), pitch, scratch);
        concat.placed |= 1u << k;
      }
    }
    channel += (size_t)x.shape[CHANNELS];
  }
  nmp_op_table[concat.kind]->run(&concat);
}
