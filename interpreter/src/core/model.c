#include "core/model.h"

#include "base/fixed.h"
#include "base/util.h"
#include "dispatch.h"
#include "gen/nmp_schema.h"
#include "ops/common/weighted.h"

/* The CRC of the file with the four bytes of the checksum itself zero. */
static uint32_t checksum(nmp_crc_fn *crc32, const uint8_t *file, size_t bytes, const uint8_t *stored) {
  static const uint8_t zeros[4] = {0, 0, 0, 0};
  size_t before = (size_t)(stored - file);
  uint32_t crc = crc32(0, file, before);
  crc = crc32(crc, zeros, 4);
  return crc32(crc, stored + 4, bytes - before - 4);
}

static int has_identifier(const uint8_t *file) {
  static const char identifier[] = NMP_IDENTIFIER;
  for (size_t i = 0; i < sizeof(identifier) - 1; i++) {
    if (file[4 + i] != (uint8_t)identifier[i]) {
      return 0;
    }
  }
  return 1;
}

nmp_status nmp_model_open(nmp_model *m, const uint8_t *file, size_t bytes, nmp_fault *fault) {
  if (bytes < 8 || !has_identifier(file)) {
    return nmp_fail(fault, -1, -1, NMP_RULE(NMP_E_NOT_NMP, "file identifier", 0, 0));
  }
  if (bytes > NMP_BYTES_MAX) {
    return nmp_fail(fault, -1, -1, NMP_RULE(NMP_E_LIMIT, "bytes of the file", (int64_t)bytes, NMP_BYTES_MAX));
  }
  m->file = file;
  m->bytes = (uint32_t)bytes;
  m->arena = NULL;
  if (!fb_verify_root(&nmp_schema, FB_MODEL, file, m->bytes)) {
    return nmp_fail(fault, -1, -1, NMP_RULE(NMP_E_STRUCTURE, "root table", 0, 0));
  }
  m->root = fb_root(file);
  uint16_t major = fb_model_major(m->root);
  if (major != NMP_FORMAT_MAJOR) {
    return nmp_fail(fault, -1, -1, NMP_RULE(NMP_E_VERSION, "major version", major, NMP_FORMAT_MAJOR));
  }
  const uint8_t *stored = fb_slot(m->root, FB_SLOT_CHECKSUM);
  uint32_t crc = stored ? checksum(NMP_IN_USE(m->kernels).crc, file, bytes, stored) : 0;
  if (stored == NULL || crc != fb_load32(stored)) {
    return nmp_fail(fault, -1, -1, NMP_RULE(NMP_E_CHECKSUM, "checksum", fb_model_checksum(m->root), crc));
  }
  if (!fb_verify(&nmp_schema, FB_MODEL, file, m->bytes)) {
    return nmp_fail(fault, -1, -1, NMP_RULE(NMP_E_STRUCTURE, "offsets and lengths", 0, 0));
  }
  m->tensors = fb_model_tensors(m->root);
  m->ops = fb_model_ops(m->root);
  m->inputs = fb_model_inputs(m->root);
  m->outputs = fb_model_outputs(m->root);
  uint64_t arena_bytes = fb_model_arena_bytes(m->root);
  if (arena_bytes > NMP_BYTES_MAX) {
    return nmp_fail(fault, -1, -1, NMP_RULE(NMP_E_LIMIT, "arena_bytes", nmp_capped(arena_bytes), NMP_BYTES_MAX));
  }
  m->arena_bytes = (uint32_t)arena_bytes;
#if NMP_TWO_MEMORIES
  m->fast = NULL;
  m->fast_bytes = fb_model_fast_bytes(m->root);
#endif
  return NMP_OK;
}

/* Elements of the shape, whose dimensions are positive, or 0 when width * elements exceed NMP_BYTES_MAX. */
static uint32_t elements(fb_vector shape, uint32_t width) {
  uint32_t size = 1;
  for (uint32_t i = 0; i < shape.count; i++) {
    int32_t dim = fb_int_element(shape, i);
    if (size > NMP_BYTES_MAX / width / (uint32_t)dim) {
      return 0;
    }
    size *= (uint32_t)dim;
  }
  return size;
}

/* The first rule that exponents along an axis break, -1 being no axis. */
static nmp_rule check_exponents(fb_vector exponents, int32_t axis, fb_vector shape) {
  if (axis < -1 || axis >= (int32_t)shape.count) {
    return NMP_RULE(NMP_E_TENSOR, "axis", axis, (int64_t)shape.count - 1);
  }
  int64_t count = axis < 0 ? 1 : fb_int_element(shape, (uint32_t)axis);
  if (exponents.count != count) {
    return NMP_RULE(NMP_E_TENSOR, "number of exponents", exponents.count, count);
  }
  for (uint32_t i = 0; i < exponents.count; i++) {
    int8_t exponent = (int8_t)exponents.data[i];
    if (exponent < NMP_EXPONENT_MIN || exponent > NMP_EXPONENT_MAX) {
      return NMP_RULE(NMP_E_TENSOR, "exponent", exponent, exponent < 0 ? NMP_EXPONENT_MIN : NMP_EXPONENT_MAX);
    }
  }
  return NMP_FINE;
}

/* The first rule that a tensor's exponents break: those of its integers, and those in the float model's numbers. */
static nmp_rule check_grids(const uint8_t *table, fb_vector floats, fb_vector shape, int is_const) {
  const int32_t axis = fb_tensor_axis(table), float_axis = fb_tensor_float_axis(table);
  if (axis >= 0 && !is_const) {
    return NMP_RULE(NMP_E_TENSOR, "axis of an activation", axis, -1);
  }
  nmp_rule rule = check_exponents(fb_tensor_exponents(table), axis, shape);
  if (rule.status || (floats.data == NULL && float_axis == -1)) {
    return rule;
  }
  if (is_const || floats.data == NULL) {
    return NMP_RULE(NMP_E_TENSOR, "number of float exponents", floats.count, !is_const);
  }
  return check_exponents(floats, float_axis, shape);
}

/* The first rule that a tensor's float offsets break: one for each float exponent, as the bits of float32. */
static nmp_rule check_offsets(fb_vector offsets, uint32_t count) {
  const uint32_t infinite = 0x7f800000;
  if (offsets.data != NULL && offsets.count != count) {
    return NMP_RULE(NMP_E_TENSOR, "number of float offsets", offsets.count, count);
  }
  for (uint32_t i = 0; i < offsets.count; i++) {
    const uint32_t bits = (uint32_t)fb_int_element(offsets, i);
    if (bits << 1 >= infinite << 1) {
      return NMP_RULE(NMP_E_TENSOR, "bits of a float offset", bits, infinite - 1);
    }
  }
  return NMP_FINE;
}

/* The first rule that a tensor's float mantissas break: one for each float exponent, in [1, 2). */
static nmp_rule check_mantissas(fb_vector mantissas, uint32_t count) {
  const uint32_t one = 0x3f800000;
  if (mantissas.data != NULL && mantissas.count != count) {
    return NMP_RULE(NMP_E_TENSOR, "number of float mantissas", mantissas.count, count);
  }
  for (uint32_t i = 0; i < mantissas.count; i++) {
    const uint32_t bits = (uint32_t)fb_int_element(mantissas, i);
    if (bits >> 23 != one >> 23) {
      return NMP_RULE(NMP_E_TENSOR, "bits of a float mantissa", bits, one);
    }
  }
  return NMP_FINE;
}

static nmp_rule check_data(const nmp_model *m, fb_vector data, uint32_t bytes) {
  if (data.count != bytes) {
    return NMP_RULE(NMP_E_TENSOR, "bytes of data", data.count, bytes);
  }
  if ((size_t)(data.data - m->file) % 64 != 0) {
    return NMP_RULE(NMP_E_TENSOR, "alignment of data", (data.data - m->file) % 64, 0);
  }
  return NMP_FINE;
}

static nmp_rule check_clip(const uint8_t *table, uint32_t bits) {
  const int64_t lo = fb_tensor_clip_min(table), hi = fb_tensor_clip_max(table), end = (int64_t)1 << (bits - 1);
  if (lo < -end || lo > hi) {
    return NMP_RULE(NMP_E_TENSOR, "clip_min", lo, lo < -end ? -end : hi);
  }
  return NMP_RULE(hi < end ? NMP_OK : NMP_E_TENSOR, "clip_max", hi, end - 1);
}

static nmp_rule check_tensor(const nmp_model *m, const uint8_t *table, nmp_needs *needs) {
  fb_vector shape = fb_tensor_shape(table);
  fb_vector data = fb_tensor_data(table);
  int8_t dtype = fb_tensor_dtype(table);
  /* There are enough: fb_verify counts more. */
  const fb_vector floats = fb_tensor_float_exponents(table), offsets = fb_tensor_float_offsets(table);
  const fb_vector mantissas = fb_tensor_float_mantissas(table);
  const uint64_t exponents = (uint64_t)fb_tensor_exponents(table).count + floats.count;
  nmp_spend(needs, 8 + exponents + offsets.count + mantissas.count);
  if (shape.count > NMP_RANK_MAX) {
    return NMP_RULE(NMP_E_TENSOR, "rank", shape.count, NMP_RANK_MAX);
  }
  if (dtype < 0 || dtype >= (data.data ? FB_DTYPE_COUNT : FB_DTYPE_INT32)) {
    return NMP_RULE(NMP_E_TENSOR, "dtype", dtype, data.data ? FB_DTYPE_INT32 : FB_DTYPE_INT16);
  }
  uint32_t bits = nmp_dtype_bits(dtype);
  if (data.data == NULL && NMP_WIDE(bits) != (bits == 16)) {
    return NMP_RULE(NMP_E_NOT_BUILT, "bits of an activation", bits, NMP_ACTIVATION_BITS);
  }
  for (uint32_t d = 0; d < shape.count; d++) {
    int32_t dim = fb_int_element(shape, d);
    if (dim < 1) {
      return NMP_RULE(NMP_E_TENSOR, "dimension", dim, 1);
    }
  }
  uint32_t size = elements(shape, bits / 8);
  if (size == 0) {
    return NMP_RULE(NMP_E_LIMIT, "bytes of a tensor", (int64_t)NMP_BYTES_MAX + 1, NMP_BYTES_MAX);
  }
  nmp_rule rule = check_grids(table, floats, shape, data.data != NULL);
  if (rule.status == NMP_OK) {
    rule = check_offsets(offsets, floats.count);
  }
  if (rule.status == NMP_OK) {
    rule = check_mantissas(mantissas, floats.count);
  }
  if (rule.status == NMP_OK && data.data) {
    rule = check_data(m, data, size * (bits / 8));
  }
  return rule.status ? rule : check_clip(table, bits);
}

static int is_activation(const nmp_model *m, int32_t tensor) {
  return fb_tensor_data(fb_element(m->tensors, (uint32_t)tensor)).data == NULL;
}

static nmp_rule check_index(const nmp_model *m, int32_t tensor, nmp_status status, const char *what) {
  const int valid = tensor >= 0 && (uint32_t)tensor < m->tensors.count;
  (void)what;
  return NMP_RULE(valid ? NMP_OK : status, what, tensor, (int64_t)m->tensors.count - 1);
}

static nmp_rule check_indices(const nmp_model *m, const uint8_t *table, nmp_needs *needs) {
  fb_vector inputs = fb_op_inputs(table), outputs = fb_op_outputs(table);
  nmp_rule rule = NMP_FINE;
  for (uint32_t k = 0; k < inputs.count && rule.status == NMP_OK; k++) {
    rule = check_index(m, fb_int_element(inputs, k), NMP_E_OP, "input");
    if (rule.status == NMP_OK) {
      /* Paid here for op->check, which may look at every exponent, and at every number of an int32 table. */
      const uint8_t *tensor = fb_element(m->tensors, (uint32_t)fb_int_element(inputs, k));
      const uint64_t numbers = fb_tensor_dtype(tensor) == FB_DTYPE_INT32 ? fb_tensor_data(tensor).count / 4 : 0;
      nmp_spend(needs, 4 + (uint64_t)fb_tensor_exponents(tensor).count + numbers);
    }
  }
  if (rule.status == NMP_OK && outputs.count != 1) {
    rule = NMP_RULE(NMP_E_OP, "number of outputs", outputs.count, 1);
  }
  if (rule.status == NMP_OK) {
    rule = check_index(m, fb_int_element(outputs, 0), NMP_E_OP, "output");
  }
  if (rule.status == NMP_OK && !is_activation(m, fb_int_element(outputs, 0))) {
    rule = NMP_RULE(NMP_E_OP, "output is a constant", fb_int_element(outputs, 0), 0);
  }
  return rule;
}

/* Steps of a run; the sum over ops cannot wrap, since it is checked after each. */
static uint64_t work_of(const nmp_op_type *type, const nmp_op *op) {
  uint64_t work = op->out[0].size;
  if (type->work) {
    return type->work(op);
  }
  for (uint32_t k = 0; k < op->input_count && k < NMP_OP_INPUTS_MAX; k++) {
    work += op->in[k].size;
  }
  return work;
}

/* at: the tensor that a rule is about, where there is one. */
static nmp_rule check_op(const nmp_model *m, uint32_t i, nmp_op *op, nmp_needs *needs, int64_t *at) {
  const uint8_t *table = fb_element(m->ops, i);
  uint8_t kind = fb_op_params_type(table);
  if (kind >= NMP_OP_KINDS) {
    return NMP_RULE(NMP_E_UNKNOWN_OP, "op number", kind, NMP_OP_KINDS - 1);
  }
  const nmp_op_type *type = kind < NMP_OP_TABLE ? nmp_op_table[kind] : NULL;
  if (type == NULL) {
    return NMP_RULE(NMP_E_NOT_BUILT, "op number", kind, 0);
  }
  nmp_rule rule = check_indices(m, table, needs);
  if (needs->budget == 0) {
    return NMP_RULE(NMP_E_LIMIT, "steps of verification", 0, 0);
  }
  if (rule.status) {
    return rule;
  }
  nmp_model_op(m, i, op);
  *at = nmp_model_output_of(m, i);
  rule = type->check(op);
  if (rule.status) {
    return rule;
  }
  *at = -1;
  uint64_t work = work_of(type, op);
  if (work > NMP_WORK_MAX - needs->work) {
    return NMP_RULE(NMP_E_LIMIT, "steps of a run", nmp_capped(work), (int64_t)NMP_WORK_MAX);
  }
  needs->work += work;
  return NMP_FINE;
}

/* Adds what an op takes besides its tensors, which is this machine's affair. The model's plan is right. */
static nmp_rule add_memory(const nmp_model *m, uint32_t i, nmp_op *op, nmp_needs *needs) {
  nmp_model_op(m, i, op);
  const size_t scratch = op->type->scratch ? op->type->scratch(op) : 0;
  const uint64_t end = (uint64_t)nmp_model_scratch_at(m, i, scratch) + scratch;
  if (end > NMP_BYTES_MAX) {
    return NMP_RULE(NMP_E_LIMIT, "bytes of the arena with scratch", (int64_t)end, NMP_BYTES_MAX);
  }
  needs->scratch = scratch > needs->scratch ? (uint32_t)scratch : needs->scratch;
  needs->arena = end > needs->arena ? (uint32_t)end : needs->arena;
  const size_t packed = nmp_round_up(nmp_op_packed(op), NMP_PACK_ALIGN);
  if (packed > NMP_BYTES_MAX - needs->packed) {
    return NMP_RULE(NMP_E_LIMIT, "bytes of packed weights", (int64_t)packed, NMP_BYTES_MAX);
  }
  needs->packed += (uint32_t)packed;
  return NMP_FINE;
}

/* Checks ops one by one; memory: what they take, once the plan is right. */
static nmp_status check_ops(const nmp_model *m, nmp_needs *needs, nmp_fault *fault, int memory) {
  nmp_op op;
  for (uint32_t i = 0; i < m->ops.count; i++) {
    int64_t at = -1;
    const nmp_rule rule = memory ? add_memory(m, i, &op, needs) : check_op(m, i, &op, needs, &at);
    if (rule.status) {
      return nmp_fail(fault, i, at, rule);
    }
  }
  return NMP_OK;
}

static nmp_status check_ports(const nmp_model *m, fb_vector ports, nmp_fault *fault) {
  for (uint32_t i = 0; i < ports.count; i++) {
    int32_t tensor = fb_port_tensor(fb_element(ports, i));
    nmp_rule rule = check_index(m, tensor, NMP_E_TENSOR, "tensor of an input or output");
    if (rule.status == NMP_OK && !is_activation(m, tensor)) {
      rule = NMP_RULE(NMP_E_TENSOR, "input or output is a constant", tensor, 0);
    }
    if (rule.status) {
      return nmp_fail(fault, -1, tensor, rule);
    }
  }
  return NMP_OK;
}

static nmp_status check_states(const nmp_model *m, nmp_fault *fault) {
  nmp_rule rule = NMP_FINE;
  for (uint32_t i = 0; i < m->outputs.count; i++) {
    const int32_t state = fb_port_state(fb_element(m->outputs, i));
    if (state != -1) {
      rule = NMP_RULE(NMP_E_TENSOR, "state of an output", state, -1);
      return nmp_fail(fault, -1, nmp_model_port(m->outputs, i), rule);
    }
  }
  for (uint32_t i = 0; i < m->inputs.count; i++) {
    rule = nmp_state_check(m, i);
    if (rule.status) {
      return nmp_fail(fault, -1, nmp_model_port(m->inputs, i), rule);
    }
  }
  return NMP_OK;
}

#if NMP_SOUND
static nmp_status check_sounds(const nmp_model *m, nmp_needs *needs, nmp_fault *fault) {
  for (uint32_t i = 0; i < m->outputs.count; i++) {
    if (fb_port_sound(fb_element(m->outputs, i)) != NULL) {
      return nmp_fail(fault, -1, nmp_model_port(m->outputs, i), NMP_RULE(NMP_E_TENSOR, "sound of an output", 1, 0));
    }
  }
  for (uint32_t i = 0; i < m->inputs.count; i++) {
    const nmp_rule rule = nmp_sound_check(m, i, needs);
    if (rule.status) {
      return nmp_fail(fault, -1, nmp_model_port(m->inputs, i), rule);
    }
  }
  return NMP_OK;
}
#endif

nmp_status nmp_model_check(const nmp_model *m, nmp_needs *needs, nmp_fault *fault) {
  nmp_status status = NMP_OK;
  needs->packed = 0;
  needs->arena = m->arena_bytes;
  needs->scratch = 0;
  needs->work = 0;
  needs->budget = 4096 + 4 * (uint64_t)m->bytes;
  for (uint32_t i = 0; i < m->tensors.count && status == NMP_OK; i++) {
    const nmp_rule rule = check_tensor(m, fb_element(m->tensors, i), needs);
    status = rule.status ? nmp_fail(fault, -1, i, rule) : NMP_OK;
  }
  if (status == NMP_OK) {
    status = check_ports(m, m->inputs, fault);
  }
  if (status == NMP_OK) {
    status = check_ports(m, m->outputs, fault);
  }
  if (status == NMP_OK) {
    status = check_states(m, fault);
  }
#if NMP_SOUND
  if (status == NMP_OK) {
    status = check_sounds(m, needs, fault);
  }
#endif
  if (status == NMP_OK) {
    status = check_ops(m, needs, fault, 0);
  }
  if (status == NMP_OK) {
    status = nmp_plan_check(m, needs, fault);
  }
  return status == NMP_OK ? check_ops(m, needs, fault, 1) : status;
}
