#include "model.h"

#include <string.h>

#include "fixed.h"
#include "gen/nmp_schema.h"
#include "level.h"

#define RULE(what, found, allowed) ((nmp_rule){what, found, allowed})

nmp_status nmp_fail(nmp_fault *fault, nmp_status status, int64_t op, int64_t tensor, nmp_rule rule) {
  fault->status = status;
  fault->op = (int32_t)op;
  fault->tensor = (int32_t)tensor;
  fault->what = rule.what;
  fault->found = rule.found;
  fault->allowed = rule.allowed;
  return status;
}

int nmp_spend(nmp_needs *needs, uint64_t steps) {
  int enough = steps <= needs->budget;
  needs->budget = enough ? needs->budget - steps : 0;
  return enough;
}

/* The CRC of the file with the four bytes of the checksum itself zero. */
static uint32_t checksum(nmp_crc_fn *crc32, const uint8_t *file, size_t bytes, const uint8_t *stored) {
  static const uint8_t zeros[4] = {0, 0, 0, 0};
  size_t before = (size_t)(stored - file);
  uint32_t crc = crc32(0, file, before);
  crc = crc32(crc, zeros, 4);
  return crc32(crc, stored + 4, bytes - before - 4);
}

nmp_status nmp_model_open(nmp_model *m, const nmp_kernels *kernels, const uint8_t *file, size_t bytes,
                          nmp_fault *fault) {
  if (bytes < 8 || memcmp(file + 4, NMP_IDENTIFIER, 4) != 0) {
    return nmp_fail(fault, NMP_E_NOT_NMP, -1, -1, RULE("file identifier", 0, 0));
  }
  if (bytes > NMP_BYTES_MAX) {
    return nmp_fail(fault, NMP_E_LIMIT, -1, -1, RULE("bytes of the file", (int64_t)bytes, NMP_BYTES_MAX));
  }
  m->file = file;
  m->bytes = (uint32_t)bytes;
  m->arena = NULL;
  if (!fb_verify_root(nmp_schema, FB_MODEL, file, m->bytes)) {
    return nmp_fail(fault, NMP_E_STRUCTURE, -1, -1, RULE("root table", 0, 0));
  }
  m->root = fb_root(file);
  uint16_t major = fb_model_major(m->root);
  if (major != NMP_FORMAT_MAJOR) {
    return nmp_fail(fault, NMP_E_VERSION, -1, -1, RULE("major version", major, NMP_FORMAT_MAJOR));
  }
  const uint8_t *stored = fb_slot(m->root, FB_SLOT_CHECKSUM);
  (void)kernels; /* unused where they are fixed */
  uint32_t crc = stored ? checksum(NMP_IN_USE(kernels).crc, file, bytes, stored) : 0;
  if (stored == NULL || crc != fb_load32(stored)) {
    return nmp_fail(fault, NMP_E_CHECKSUM, -1, -1, RULE("checksum", fb_model_checksum(m->root), crc));
  }
  if (!fb_verify(nmp_schema, FB_MODEL, file, m->bytes)) {
    return nmp_fail(fault, NMP_E_STRUCTURE, -1, -1, RULE("offsets and lengths", 0, 0));
  }
  m->tensors = fb_model_tensors(m->root);
  m->ops = fb_model_ops(m->root);
  m->inputs = fb_model_inputs(m->root);
  m->outputs = fb_model_outputs(m->root);
  uint64_t arena_bytes = fb_model_arena_bytes(m->root);
  if (arena_bytes > NMP_BYTES_MAX) {
    return nmp_fail(fault, NMP_E_LIMIT, -1, -1, RULE("arena_bytes", (int64_t)(arena_bytes >> 1), NMP_BYTES_MAX));
  }
  m->arena_bytes = (uint32_t)arena_bytes;
  return NMP_OK;
}

static const uint8_t dtype_bits[FB_DTYPE_COUNT] = {8, 16, 32};

/* Elements of the shape, or 0 when it is illegal or width * elements exceed NMP_BYTES_MAX. */
static uint32_t elements(fb_vector shape, uint32_t width) {
  uint32_t size = 1;
  for (uint32_t i = 0; i < shape.count; i++) {
    int32_t dim = fb_int_element(shape, i);
    if (dim < 1 || size > NMP_BYTES_MAX / width / (uint32_t)dim) {
      return 0;
    }
    size *= (uint32_t)dim;
  }
  return size;
}

/* The first rule that the exponents of the tensor break. */
static nmp_rule check_exponents(const uint8_t *table, fb_vector shape, int is_const) {
  fb_vector exponents = fb_tensor_exponents(table);
  int32_t axis = fb_tensor_axis(table);
  if (axis < -1 || axis >= (int32_t)shape.count) {
    return RULE("axis", axis, (int64_t)shape.count - 1);
  }
  if (axis >= 0 && !is_const) {
    return RULE("axis of an activation", axis, -1);
  }
  int64_t count = axis < 0 ? 1 : fb_int_element(shape, (uint32_t)axis);
  if (exponents.count != count) {
    return RULE("number of exponents", exponents.count, count);
  }
  for (uint32_t i = 0; i < exponents.count; i++) {
    int8_t exponent = (int8_t)exponents.data[i];
    if (exponent < NMP_EXPONENT_MIN || exponent > NMP_EXPONENT_MAX) {
      return RULE("exponent", exponent, exponent < 0 ? NMP_EXPONENT_MIN : NMP_EXPONENT_MAX);
    }
  }
  return RULE(NULL, 0, 0);
}

static nmp_rule check_data(const nmp_model *m, fb_vector data, uint32_t bytes) {
  if (data.count != bytes) {
    return RULE("bytes of data", data.count, bytes);
  }
  if ((size_t)(data.data - m->file) % 64 != 0) {
    return RULE("alignment of data", (data.data - m->file) % 64, 0);
  }
  return RULE(NULL, 0, 0);
}

static nmp_status check_tensor(const nmp_model *m, uint32_t i, nmp_needs *needs, nmp_fault *fault) {
  const uint8_t *table = fb_element(m->tensors, i);
  fb_vector shape = fb_tensor_shape(table);
  fb_vector data = fb_tensor_data(table);
  int8_t dtype = fb_tensor_dtype(table);
  if (!nmp_spend(needs, 8 + (uint64_t)fb_tensor_exponents(table).count)) {
    return nmp_fail(fault, NMP_E_LIMIT, -1, i, RULE("steps of verification", 0, 0));
  }
  if (shape.count > NMP_RANK_MAX) {
    return nmp_fail(fault, NMP_E_TENSOR, -1, i, RULE("rank", shape.count, NMP_RANK_MAX));
  }
  if (dtype < 0 || dtype >= (data.data ? FB_DTYPE_COUNT : FB_DTYPE_INT32)) {
    return nmp_fail(fault, NMP_E_TENSOR, -1, i, RULE("dtype", dtype, data.data ? FB_DTYPE_INT32 : FB_DTYPE_INT16));
  }
  uint32_t bits = dtype_bits[dtype];
  for (uint32_t d = 0; d < shape.count; d++) {
    int32_t dim = fb_int_element(shape, d);
    if (dim < 1) {
      return nmp_fail(fault, NMP_E_TENSOR, -1, i, RULE("dimension", dim, 1));
    }
  }
  uint32_t size = elements(shape, bits / 8);
  if (size == 0) {
    return nmp_fail(fault, NMP_E_LIMIT, -1, i, RULE("bytes of a tensor", (int64_t)NMP_BYTES_MAX + 1, NMP_BYTES_MAX));
  }
  nmp_rule rule = check_exponents(table, shape, data.data != NULL);
  if (rule.what == NULL && data.data) {
    rule = check_data(m, data, size * (bits / 8));
  }
  int64_t lo = fb_tensor_clip_min(table), hi = fb_tensor_clip_max(table);
  int64_t end = (int64_t)1 << (bits - 1);
  if (rule.what == NULL && (lo < -end || lo > hi)) {
    rule = RULE("clip_min", lo, lo < -end ? -end : hi);
  }
  if (rule.what == NULL && hi >= end) {
    rule = RULE("clip_max", hi, end - 1);
  }
  return rule.what ? nmp_fail(fault, NMP_E_TENSOR, -1, i, rule) : NMP_OK;
}

void nmp_model_tensor(const nmp_model *m, uint32_t i, nmp_tensor *t) {
  /* All of the table is read before anything is written, so that compilers look up its layout once. */
  const uint8_t *table = fb_element(m->tensors, i);
  const fb_vector shape = fb_tensor_shape(table), data = fb_tensor_data(table), exponents = fb_tensor_exponents(table);
  const int32_t lo = fb_tensor_clip_min(table), hi = fb_tensor_clip_max(table);
  const uint32_t offset = fb_tensor_offset(table);
  const uint8_t bits = dtype_bits[fb_tensor_dtype(table)];
  const int8_t axis = fb_tensor_axis(table);
  uint32_t size = 1;
  for (uint32_t d = 0; d < shape.count; d++) {
    t->shape[d] = fb_int_element(shape, d);
    size *= (uint32_t)t->shape[d];
  }
  t->rank = (uint8_t)shape.count;
  t->size = size;
  t->bits = bits;
  t->is_const = data.data != NULL;
  t->exponents = (const int8_t *)exponents.data;
  t->exponent = t->exponents[0];
  t->exponent_count = exponents.count;
  t->axis = axis;
  t->lo = lo;
  t->hi = hi;
  t->offset = offset;
  if (t->is_const) {
    t->data = (void *)(uintptr_t)data.data; /* never written: outputs are activations */
  } else {
    t->data = m->arena ? m->arena + offset : NULL;
  }
}

static void input_at(const nmp_op *op, uint32_t i, nmp_tensor *t) {
  nmp_model_tensor((const nmp_model *)op->model, (uint32_t)fb_int_element(fb_op_inputs((const uint8_t *)op->table), i),
                   t);
}

void nmp_model_op(const nmp_model *m, uint32_t i, nmp_op *op) {
  const uint8_t *table = fb_element(m->ops, i);
  const fb_vector inputs = fb_op_inputs(table);
  op->kind = (enum nmp_op_kind)fb_op_params_type(table);
  op->input_count = inputs.count;
  op->output_count = 1;
  op->model = m;
  op->table = table;
  op->input_at = input_at;
  for (uint32_t k = 0; k < op->input_count && k < NMP_OP_INPUTS_MAX; k++) {
    nmp_model_tensor(m, (uint32_t)fb_int_element(inputs, k), &op->in[k]);
  }
  nmp_model_tensor(m, nmp_model_output_of(m, i), &op->out[0]);
  nmp_params_decode(op->kind, fb_op_params(table), &op->params);
}

uint32_t nmp_model_output_of(const nmp_model *m, uint32_t op) {
  return (uint32_t)fb_int_element(fb_op_outputs(fb_element(m->ops, op)), 0);
}

uint32_t nmp_model_live_end(const nmp_model *m, uint32_t op) {
  const uint32_t end = fb_op_live_end(fb_element(m->ops, op));
  return end ? end : m->arena_bytes;
}

uint32_t nmp_model_port(fb_vector ports, uint32_t i) {
  return (uint32_t)fb_port_tensor(fb_element(ports, i));
}

static int is_activation(const nmp_model *m, int32_t tensor) {
  return fb_tensor_data(fb_element(m->tensors, (uint32_t)tensor)).data == NULL;
}

static nmp_rule check_index(const nmp_model *m, int32_t tensor, const char *what) {
  int valid = tensor >= 0 && (uint32_t)tensor < m->tensors.count;
  return RULE(valid ? NULL : what, tensor, (int64_t)m->tensors.count - 1);
}

static nmp_rule check_indices(const nmp_model *m, const uint8_t *table, nmp_needs *needs) {
  fb_vector inputs = fb_op_inputs(table), outputs = fb_op_outputs(table);
  nmp_rule rule = RULE(NULL, 0, 0);
  for (uint32_t k = 0; k < inputs.count && rule.what == NULL; k++) {
    rule = check_index(m, fb_int_element(inputs, k), "input");
    if (rule.what == NULL) {
      /* Paid here for op->check, which may look at every exponent. */
      const uint8_t *tensor = fb_element(m->tensors, (uint32_t)fb_int_element(inputs, k));
      nmp_spend(needs, 4 + (uint64_t)fb_tensor_exponents(tensor).count);
    }
  }
  if (rule.what == NULL && outputs.count != 1) {
    rule = RULE("number of outputs", outputs.count, 1);
  }
  if (rule.what == NULL) {
    rule = check_index(m, fb_int_element(outputs, 0), "output");
  }
  if (rule.what == NULL && !is_activation(m, fb_int_element(outputs, 0))) {
    rule = RULE("output is a constant", fb_int_element(outputs, 0), 0);
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

size_t nmp_model_packed(const nmp_op *op) {
  const nmp_op_type *type = nmp_op_table[op->kind];
  const size_t bytes = type->packed ? type->packed(op) : 0;
  return (bytes + NMP_PACK_ALIGN - 1) / NMP_PACK_ALIGN * NMP_PACK_ALIGN;
}

/* op has the kernels and threads, and room for the rest. */
static nmp_status check_op(const nmp_model *m, uint32_t i, nmp_op *op, nmp_needs *needs, nmp_fault *fault) {
  const uint8_t *table = fb_element(m->ops, i);
  uint8_t kind = fb_op_params_type(table);
  if (kind >= NMP_OP_KINDS) {
    return nmp_fail(fault, NMP_E_UNKNOWN_OP, i, -1, RULE("op number", kind, NMP_OP_KINDS - 1));
  }
  const nmp_op_type *type = nmp_op_table[kind];
  if (type == NULL) {
    return nmp_fail(fault, NMP_E_NOT_BUILT, i, -1, RULE("op number", kind, 0));
  }
  nmp_rule rule = check_indices(m, table, needs);
  if (needs->budget == 0) {
    return nmp_fail(fault, NMP_E_LIMIT, i, -1, RULE("steps of verification", 0, 0));
  }
  if (rule.what) {
    return nmp_fail(fault, NMP_E_OP, i, -1, rule);
  }
  nmp_model_op(m, i, op);
  rule = type->check(op);
  if (rule.what) {
    return nmp_fail(fault, NMP_E_OP, i, nmp_model_output_of(m, i), rule);
  }
  size_t scratch = type->scratch ? type->scratch(op) : 0;
  if (scratch > NMP_BYTES_MAX) {
    return nmp_fail(fault, NMP_E_LIMIT, i, -1, RULE("bytes of scratch", (int64_t)scratch, NMP_BYTES_MAX));
  }
  needs->scratch = scratch > needs->scratch ? (uint32_t)scratch : needs->scratch;
  const uint64_t end = (uint64_t)nmp_model_live_end(m, i) + scratch; /* below 2^33: live_end is checked later */
  if (end > NMP_BYTES_MAX) {
    return nmp_fail(fault, NMP_E_LIMIT, i, -1, RULE("bytes of the arena with scratch", (int64_t)end, NMP_BYTES_MAX));
  }
  needs->arena = end > needs->arena ? (uint32_t)end : needs->arena;
  const size_t packed = nmp_model_packed(op);
  if (packed > NMP_BYTES_MAX - needs->packed) {
    return nmp_fail(fault, NMP_E_LIMIT, i, -1, RULE("bytes of packed weights", (int64_t)packed, NMP_BYTES_MAX));
  }
  needs->packed += (uint32_t)packed;
  uint64_t work = work_of(type, op);
  if (work > NMP_WORK_MAX - needs->work) {
    return nmp_fail(fault, NMP_E_LIMIT, i, -1, RULE("steps of a run", (int64_t)(work >> 1), (int64_t)NMP_WORK_MAX));
  }
  needs->work += work;
  return NMP_OK;
}

static nmp_status check_ports(const nmp_model *m, fb_vector ports, nmp_fault *fault) {
  for (uint32_t i = 0; i < ports.count; i++) {
    int32_t tensor = fb_port_tensor(fb_element(ports, i));
    nmp_rule rule = check_index(m, tensor, "tensor of an input or output");
    if (rule.what == NULL && !is_activation(m, tensor)) {
      rule = RULE("input or output is a constant", tensor, 0);
    }
    if (rule.what) {
      return nmp_fail(fault, NMP_E_TENSOR, -1, tensor, rule);
    }
  }
  return NMP_OK;
}

nmp_status nmp_model_check(const nmp_model *m, const nmp_kernels *kernels, const nmp_options *threads, nmp_needs *needs,
                           nmp_fault *fault) {
  nmp_status status = NMP_OK;
  nmp_op op;
  op.scratch = NULL;
  op.packed = NULL;
  op.kernels = kernels;
  op.threads = threads;
  needs->packed = 0;
  needs->arena = m->arena_bytes;
  needs->scratch = 0;
  needs->work = 0;
  needs->budget = 4096 + 4 * (uint64_t)m->bytes;
  for (uint32_t i = 0; i < m->tensors.count && status == NMP_OK; i++) {
    status = check_tensor(m, i, needs, fault);
  }
  if (status == NMP_OK) {
    status = check_ports(m, m->inputs, fault);
  }
  if (status == NMP_OK) {
    status = check_ports(m, m->outputs, fault);
  }
  for (uint32_t i = 0; i < m->ops.count && status == NMP_OK; i++) {
    status = check_op(m, i, &op, needs, fault);
  }
  return status == NMP_OK ? nmp_plan_check(m, needs, fault) : status;
}
