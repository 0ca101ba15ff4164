/* The memory plan, verified without memory of its own.
 *
 * Activations are numbered in the order in which they come to be: graph inputs first, then the ops' outputs. So nothing
 * is written twice, and a read is right when, going back from it, the tensor's producer (or the start, for a graph
 * input) comes before any op whose output touches the tensor's bytes.
 */
#include "base/build.h"
#include "core/model.h"
#include "gen/nmp_schema.h"

#define OVERLAP_STEPS 128 /* of verification */

typedef struct extent {
  uint32_t start, bytes, size;
} extent;

static extent extent_of(const nmp_model *m, uint32_t i) {
  nmp_tensor t;
  nmp_model_tensor(m, i, &t);
  extent e = {.start = fb_tensor_offset(fb_element(m->tensors, i)), .bytes = t.size * (t.bits / 8u), .size = t.size};
  return e;
}

static int overlap(extent a, extent b) {
  return a.start < b.start + b.bytes && b.start < a.start + a.bytes;
}

static int equal(extent a, extent b) {
  return a.start == b.start && a.bytes == b.bytes && a.size == b.size;
}

static int is_const(const nmp_model *m, uint32_t tensor) {
  return fb_tensor_data(fb_element(m->tensors, tensor)).data != NULL;
}

static nmp_status check_place(const nmp_model *m, uint32_t tensor, nmp_fault *fault) {
  extent e = extent_of(m, tensor);
  if (e.start % NMP_ALIGN != 0) {
    return nmp_fail(fault, -1, tensor, NMP_RULE(NMP_E_PLAN, "alignment of the offset", e.start, NMP_ALIGN));
  }
  if (e.start > m->arena_bytes || e.bytes > m->arena_bytes - e.start) {
    return nmp_fail(fault, -1, tensor,
                    NMP_RULE(NMP_E_PLAN, "end in the arena", (int64_t)e.start + e.bytes, m->arena_bytes));
  }
#if NMP_TWO_MEMORIES
  if (e.start < m->fast_bytes && e.start + e.bytes > m->fast_bytes) {
    return nmp_fail(fault, -1, tensor,
                    NMP_RULE(NMP_E_PLAN, "end in the fast memory", (int64_t)e.start + e.bytes, m->fast_bytes));
  }
#endif
  return NMP_OK;
}

#if NMP_TWO_MEMORIES
/* The room of an op's scratch in the fast memory. */
static extent room_of(const nmp_model *m, uint32_t op) {
  const uint8_t *table = fb_element(m->ops, op);
  extent e = {.start = fb_op_scratch_at(table), .bytes = fb_op_scratch_room(table), .size = 0};
  return e;
}

static nmp_status check_fast(const nmp_model *m, nmp_fault *fault) {
  if (m->fast_bytes % NMP_ALIGN != 0 || m->fast_bytes > m->arena_bytes) {
    return nmp_fail(fault, -1, -1, NMP_RULE(NMP_E_PLAN, "fast_bytes", m->fast_bytes, m->arena_bytes));
  }
  for (uint32_t i = 0; i < m->ops.count; i++) {
    const extent e = room_of(m, i);
    if (e.start % NMP_ALIGN != 0 || e.start > m->fast_bytes || e.bytes > m->fast_bytes - e.start) {
      return nmp_fail(
          fault, i, -1,
          NMP_RULE(NMP_E_PLAN, "scratch in the fast memory", (int64_t)e.start + (int64_t)e.bytes, m->fast_bytes));
    }
  }
  return NMP_OK;
}
#endif

/* Checks that a tensor which is alive while an op runs lies below its live_end, for its scratch is above, or else where
 * that has room. */
static nmp_status check_alive(const nmp_model *m, uint32_t op, uint32_t tensor, extent e, nmp_fault *fault) {
  if (op < m->ops.count && e.start + e.bytes > nmp_model_live_end(m, op)) {
    return nmp_fail(fault, op, tensor,
                    NMP_RULE(NMP_E_PLAN, "live_end of the op", nmp_model_live_end(m, op), (int64_t)e.start + e.bytes));
  }
#if NMP_TWO_MEMORIES
  if (op < m->ops.count && room_of(m, op).bytes > 0 && overlap(e, room_of(m, op))) {
    return nmp_fail(fault, op, tensor, NMP_RULE(NMP_E_PLAN, "scratch over a tensor, at offset", e.start, 0));
  }
#endif
  return NMP_OK;
}

/* Input k of the op lies in the output where the op would put it. */
static int is_part(const nmp_model *m, uint32_t i, uint32_t k, nmp_needs *needs) {
  nmp_op op;
  const nmp_op_type *type = nmp_op_table[fb_op_params_type(fb_element(m->ops, i))];
  if (!nmp_spend(needs, k) || type->place == NULL) {
    return 0;
  }
  nmp_model_op(m, i, &op);
  const uint32_t input = (uint32_t)fb_int_element(fb_op_inputs(fb_element(m->ops, i)), k);
  const int64_t at = type->place(&op, k);
  return at >= 0 && (int64_t)extent_of(m, input).start == (int64_t)extent_of(m, nmp_model_output_of(m, i)).start + at;
}

/* The output may share bytes with the first input as it lies. */
static int may_overlap(const nmp_model *m, uint32_t i, nmp_needs *needs) {
  nmp_op op;
  const nmp_op_type *type = nmp_op_table[fb_op_params_type(fb_element(m->ops, i))];
  if (!nmp_spend(needs, OVERLAP_STEPS) || type->overlap == NULL) {
    return 0;
  }
  nmp_model_op(m, i, &op);
  return type->overlap(&op);
}

/* The tensor, read by op `reader` (or by the caller after the last op), still holds what was produced. */
static nmp_status check_read(const nmp_model *m, uint32_t reader, uint32_t tensor, nmp_needs *needs, nmp_fault *fault) {
  extent e = extent_of(m, tensor);
  const int64_t op = reader < m->ops.count ? (int64_t)reader : -1;
  nmp_status status = check_alive(m, reader, tensor, e, fault);
  for (uint32_t i = reader; i-- > 0 && status == NMP_OK;) {
    uint32_t output = nmp_model_output_of(m, i);
    if (!nmp_spend(needs, 1)) {
      return nmp_fail(fault, op, tensor, NMP_RULE(NMP_E_LIMIT, "steps of verification", 0, 0));
    }
    if (output == tensor) {
      return NMP_OK;
    }
    if (overlap(e, extent_of(m, output))) {
      return nmp_fail(fault, i, tensor, NMP_RULE(NMP_E_PLAN, "overwritten before its last use, at offset", e.start, 0));
    }
    status = check_alive(m, i, tensor, e, fault);
  }
  if (status != NMP_OK) {
    return status;
  }
  for (uint32_t i = 0; i < m->inputs.count; i++) {
    if (nmp_model_port(m->inputs, i) == tensor) {
      return NMP_OK;
    }
  }
  return nmp_fail(fault, op, tensor, NMP_RULE(NMP_E_ORDER, "read before it is produced", tensor, 0));
}

/* The output touches an input only where an op that works in place has the same elements at the same bytes. */
static nmp_status check_output(const nmp_model *m, uint32_t op, nmp_needs *needs, nmp_fault *fault) {
  const uint8_t *table = fb_element(m->ops, op);
  fb_vector inputs = fb_op_inputs(table);
  uint32_t output = nmp_model_output_of(m, op);
  extent out = extent_of(m, output);
  int in_place = 0;
  for (uint32_t k = 0; k < inputs.count; k++) {
    uint32_t input = (uint32_t)fb_int_element(inputs, k);
    extent in = extent_of(m, input);
    if (is_const(m, input) || !overlap(out, in)) {
      continue;
    }
    in_place |= k == 0;
    const int same = nmp_op_table[fb_op_params_type(table)]->in_place && in_place && equal(out, in);
    if (!same && !is_part(m, op, k, needs) && (k > 0 || !may_overlap(m, op, needs))) {
      return nmp_fail(fault, op, output, NMP_RULE(NMP_E_PLAN, "output overlaps input", k, 0));
    }
  }
  const uint32_t live_end = nmp_model_live_end(m, op);
  if (live_end % NMP_ALIGN != 0 || live_end > m->arena_bytes) {
    return nmp_fail(fault, op, output, NMP_RULE(NMP_E_PLAN, "live_end of the op", live_end, m->arena_bytes));
  }
  return check_alive(m, op, output, out, fault);
}

/* Graph inputs are written together, so they lie apart. */
static nmp_status check_inputs(const nmp_model *m, nmp_needs *needs, nmp_fault *fault) {
  for (uint32_t i = 1; i < m->inputs.count; i++) {
    uint32_t tensor = nmp_model_port(m->inputs, i);
    if (!nmp_spend(needs, i)) {
      return nmp_fail(fault, -1, tensor, NMP_RULE(NMP_E_LIMIT, "steps of verification", 0, 0));
    }
    if (tensor <= nmp_model_port(m->inputs, i - 1)) {
      return nmp_fail(fault, -1, tensor, NMP_RULE(NMP_E_ORDER, "inputs are not in order", tensor, 0));
    }
    for (uint32_t k = 0; k < i; k++) {
      if (overlap(extent_of(m, tensor), extent_of(m, nmp_model_port(m->inputs, k)))) {
        return nmp_fail(fault, -1, tensor, NMP_RULE(NMP_E_PLAN, "inputs overlap", i, k));
      }
    }
  }
  return NMP_OK;
}

/* The output comes after the outputs of all earlier ops and after the graph inputs. */
static nmp_status check_order(const nmp_model *m, uint32_t op, nmp_fault *fault) {
  int64_t output = nmp_model_output_of(m, op), before = -1;
  if (op > 0) {
    before = nmp_model_output_of(m, op - 1);
  } else if (m->inputs.count > 0) {
    before = nmp_model_port(m->inputs, m->inputs.count - 1);
  }
  return output > before
             ? NMP_OK
             : nmp_fail(fault, op, output, NMP_RULE(NMP_E_ORDER, "outputs are not in order", output, before + 1));
}

static nmp_status check_op(const nmp_model *m, uint32_t op, nmp_needs *needs, nmp_fault *fault) {
  fb_vector inputs = fb_op_inputs(fb_element(m->ops, op));
  nmp_status status = check_order(m, op, fault);
  for (uint32_t k = 0; k < inputs.count && status == NMP_OK; k++) {
    uint32_t input = (uint32_t)fb_int_element(inputs, k);
    if (!is_const(m, input)) {
      status = check_read(m, op, input, needs, fault);
    }
  }
  return status == NMP_OK ? check_output(m, op, needs, fault) : status;
}

/* After the last op a state takes over its output: it touches no output but, at the very same bytes, its own. */
static nmp_status check_state(const nmp_model *m, uint32_t input, nmp_needs *needs, nmp_fault *fault) {
  const int32_t own = nmp_model_state(m, input);
  const uint32_t tensor = nmp_model_port(m->inputs, input);
  if (own >= 0 && !nmp_spend(needs, m->outputs.count)) {
    return nmp_fail(fault, -1, tensor, NMP_RULE(NMP_E_LIMIT, "steps of verification", 0, 0));
  }
  for (uint32_t i = 0; own >= 0 && i < m->outputs.count; i++) {
    const uint32_t output = nmp_model_port(m->outputs, i);
    const extent to = extent_of(m, tensor), from = extent_of(m, output);
    const int its_own = output == nmp_model_port(m->outputs, (uint32_t)own) && equal(to, from);
    if (overlap(to, from) && !its_own) {
      return nmp_fail(fault, -1, tensor, NMP_RULE(NMP_E_PLAN, "state overlaps output", i, 0));
    }
  }
  return NMP_OK;
}

nmp_status nmp_plan_check(const nmp_model *m, nmp_needs *needs, nmp_fault *fault) {
  nmp_status status = NMP_OK;
#if NMP_TWO_MEMORIES
  status = check_fast(m, fault);
#endif
  for (uint32_t i = 0; i < m->tensors.count && status == NMP_OK; i++) {
    status = is_const(m, i) ? NMP_OK : check_place(m, i, fault);
  }
  if (status == NMP_OK) {
    status = check_inputs(m, needs, fault);
  }
  for (uint32_t i = 0; i < m->ops.count && status == NMP_OK; i++) {
    status = check_op(m, i, needs, fault);
  }
  for (uint32_t i = 0; i < m->outputs.count && status == NMP_OK; i++) {
    status = check_read(m, m->ops.count, nmp_model_port(m->outputs, i), needs, fault);
  }
  for (uint32_t i = 0; NMP_STATES && i < m->inputs.count && status == NMP_OK; i++) {
    status = check_state(m, i, needs, fault);
  }
  return status;
}
