/* States: inputs that hold, from one call to the next, what an output was. */
#include <string.h>

#include "base/build.h"
#include "core/model.h"
#include "gen/nmp_schema.h"

static int same_grid(const nmp_tensor *a, const nmp_tensor *b) {
  if (a->rank != b->rank || a->bits != b->bits || a->exponent != b->exponent) {
    return 0;
  }
  for (uint32_t i = 0; i < a->rank; i++) {
    if (a->shape[i] != b->shape[i]) {
      return 0;
    }
  }
  return 1;
}

nmp_rule nmp_state_check(const nmp_model *m, uint32_t input) {
  const int32_t output = nmp_model_state(m, input);
  const int32_t start = fb_port_start(fb_element(m->inputs, input));
  nmp_tensor to, from;
  if (output == -1) {
    return NMP_FINE;
  }
  if (!NMP_STATES) {
    return NMP_RULE(NMP_E_NOT_BUILT, "states", 1, 0);
  }
  if (output < -1 || (uint32_t)output >= m->outputs.count) {
    return NMP_RULE(NMP_E_TENSOR, "output of a state", output, (int64_t)m->outputs.count - 1);
  }
  nmp_model_tensor(m, nmp_model_port(m->inputs, input), &to);
  nmp_model_tensor(m, nmp_model_port(m->outputs, (uint32_t)output), &from);
  if (!same_grid(&to, &from)) {
    return NMP_RULE(NMP_E_TENSOR, "shape or grid of a state's output", output, 0);
  }
  if (start < to.lo || start > to.hi) {
    return NMP_RULE(NMP_E_TENSOR, "start of a state", start, start < to.lo ? to.lo : to.hi);
  }
  return NMP_FINE;
}

void nmp_states_begin(const nmp_model *m) {
  nmp_tensor t;
  for (uint32_t i = 0; NMP_STATES && i < m->inputs.count; i++) {
    if (nmp_model_state(m, i) < 0) {
      continue;
    }
    const int32_t start = fb_port_start(fb_element(m->inputs, i));
    nmp_model_tensor(m, nmp_model_port(m->inputs, i), &t);
    for (uint32_t k = 0; k < t.size; k++) {
      if (NMP_WIDE(t.bits)) {
        ((int16_t *)t.data)[k] = (int16_t)start;
      } else {
        ((int8_t *)t.data)[k] = (int8_t)start;
      }
    }
  }
}

void nmp_states_advance(const nmp_model *m) {
  nmp_tensor to, from;
  for (uint32_t i = 0; NMP_STATES && i < m->inputs.count; i++) {
    const int32_t output = nmp_model_state(m, i);
    if (output < 0) {
      continue;
    }
    nmp_model_tensor(m, nmp_model_port(m->inputs, i), &to);
    nmp_model_tensor(m, nmp_model_port(m->outputs, (uint32_t)output), &from);
    if (to.data != from.data) {
      memcpy(to.data, from.data, to.size * (size_t)(to.bits / 8));
    }
  }
}

size_t nmp_states_copy(const nmp_model *m, uint8_t *to, const uint8_t *from) {
  size_t done = 0;
  nmp_tensor t;
  for (uint32_t i = 0; NMP_STATES && i < m->inputs.count; i++) {
    if (nmp_model_state(m, i) < 0) {
      continue;
    }
    nmp_model_tensor(m, nmp_model_port(m->inputs, i), &t);
    const size_t bytes = t.size * (size_t)(t.bits / 8);
    if (to != NULL) {
      memcpy(to + done, t.data, bytes);
    }
    if (from != NULL) {
      memcpy(t.data, from + done, bytes);
    }
    done += bytes;
  }
  return done;
}
