/* Tensors and ops of a verified file as plain numbers and addresses: on microcontrollers before each run of an op. */
#include "core/model.h"
#include "gen/nmp_schema.h"

uint8_t *nmp_model_at(const nmp_model *m, uint32_t offset) {
  if (m->arena == NULL) {
    return NULL;
  }
#if NMP_TWO_MEMORIES
  return offset < m->fast_bytes ? m->fast + offset : m->arena + (offset - m->fast_bytes);
#else
  return m->arena + offset;
#endif
}

void nmp_model_tensor(const nmp_model *m, uint32_t i, nmp_tensor *restrict t) {
  const uint8_t *table = fb_element(m->tensors, i);
  const fb_vector shape = fb_tensor_shape(table);
  uint32_t size = 1;
  for (uint32_t d = 0; d < shape.count; d++) {
    t->shape[d] = fb_int_element(shape, d);
    size *= (uint32_t)t->shape[d];
  }
  t->rank = (uint8_t)shape.count;
  t->size = size;
  const fb_vector exponents = fb_tensor_exponents(table);
  t->exponents = (const int8_t *)exponents.data;
  t->exponent = t->exponents[0];
  t->exponent_count = exponents.count;
  const fb_vector data = fb_tensor_data(table);
  t->is_const = data.data != NULL;
  if (t->is_const) {
    t->bits = nmp_dtype_bits(fb_tensor_dtype(table));
    t->data = (void *)(uintptr_t)data.data; /* never written: outputs are activations */
    t->axis = fb_tensor_axis(table);
    t->lo = NMP_CUSTOM ? fb_tensor_clip_min(table) : 0;
    t->hi = NMP_CUSTOM ? fb_tensor_clip_max(table) : 0;
    t->offset = 0;
  } else {
    t->bits = NMP_ACTIVATION_BITS ? NMP_ACTIVATION_BITS : nmp_dtype_bits(fb_tensor_dtype(table));
    t->axis = -1;
    t->lo = fb_tensor_clip_min(table);
    t->hi = fb_tensor_clip_max(table);
    t->offset = fb_tensor_offset(table);
    t->data = nmp_model_at(m, t->offset);
  }
}

static void input_at(const nmp_op *op, uint32_t i, nmp_tensor *t) {
  nmp_model_tensor((const nmp_model *)op->model, (uint32_t)fb_int_element(fb_op_inputs((const uint8_t *)op->table), i),
                   t);
}

void nmp_model_op(const nmp_model *m, uint32_t i, nmp_op *op) {
  const uint8_t *table = fb_element(m->ops, i), *params = fb_op_params(table);
  const fb_vector inputs = fb_op_inputs(table);
  const uint8_t kind = fb_op_params_type(table);
  const uint32_t output = (uint32_t)fb_int_element(fb_op_outputs(table), 0);
#if !NMP_TWO_MEMORIES
  const uint32_t live_end = fb_op_live_end(table);
  op->scratch = nmp_model_at(m, live_end ? live_end : m->arena_bytes);
#endif
  op->type = nmp_op_table[kind];
  const uint32_t apart = NMP_CONV_ADD && op->type->adds && inputs.count > 0;
  op->input_count = inputs.count - apart;
  op->output_count = 1;
  op->threads = m->options;
  if (!NMP_FIXED_CPU) {
    op->kernels = m->kernels;
  }
  if (NMP_KEEP_STEPS) {
    op->call = NULL;
    op->placed = 0;
  }
  op->model = m;
  op->table = table;
  op->input_at = input_at;
  const uint32_t decoded = inputs.count - apart < NMP_OP_INPUTS_MAX ? inputs.count - apart : NMP_OP_INPUTS_MAX;
  for (uint32_t k = 0; k < decoded; k++) {
    nmp_model_tensor(m, (uint32_t)fb_int_element(inputs, k + apart), &op->in[k]);
  }
#if NMP_CONV_ADD
  if (apart) {
    nmp_model_tensor(m, (uint32_t)fb_int_element(inputs, 0), &op->added);
  }
#endif
  nmp_model_tensor(m, output, &op->out[0]);
  nmp_op_decode[kind](params, &op->params);
#if NMP_TWO_MEMORIES
  op->scratch_room = fb_op_scratch_room(table);
  op->slow = m->fast_bytes > 0 && op->out[0].offset >= m->fast_bytes;
  op->scratch = NULL;
  if (m->arena) { /* of a verified file, whose ops tell their scratch */
    op->scratch = nmp_model_at(m, nmp_model_scratch_at(m, i, op->type->scratch ? op->type->scratch(op) : 0));
  }
#endif
}

uint32_t nmp_model_output_of(const nmp_model *m, uint32_t op) {
  return (uint32_t)fb_int_element(fb_op_outputs(fb_element(m->ops, op)), 0);
}

uint32_t nmp_model_live_end(const nmp_model *m, uint32_t op) {
  const uint32_t end = fb_op_live_end(fb_element(m->ops, op));
  return end ? end : m->arena_bytes;
}

uint32_t nmp_model_slow_end(const nmp_model *m, uint32_t op) {
  const uint32_t end = nmp_model_live_end(m, op);
  return end > NMP_FAST_BYTES(m) ? end : NMP_FAST_BYTES(m);
}

uint32_t nmp_model_scratch_at(const nmp_model *m, uint32_t op, size_t bytes) {
#if NMP_TWO_MEMORIES
  const uint8_t *table = fb_element(m->ops, op);
  if (bytes <= fb_op_scratch_room(table)) {
    return fb_op_scratch_at(table);
  }
#endif
  (void)bytes;
  return nmp_model_slow_end(m, op);
}

uint32_t nmp_model_port(fb_vector ports, uint32_t i) {
  return (uint32_t)fb_port_tensor(fb_element(ports, i));
}

int32_t nmp_model_state(const nmp_model *m, uint32_t i) {
  return fb_port_state(fb_element(m->inputs, i));
}
