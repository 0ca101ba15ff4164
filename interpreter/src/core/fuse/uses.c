#include "core/fuse/uses.h"

#include "gen/nmp_schema.h"
#include "ops/common/check.h"

size_t nmp_tensor_bytes(const nmp_tensor *t) {
  return t->size * nmp_bytes(t);
}

int nmp_share_bytes(const nmp_tensor *a, const nmp_tensor *b) {
  return !a->is_const && a->offset < b->offset + nmp_tensor_bytes(b) && b->offset < a->offset + nmp_tensor_bytes(a);
}

int nmp_is_wanted(const nmp_model *m, uint32_t maker, uint32_t reader, uint64_t *budget) {
  const uint32_t tensor = nmp_model_output_of(m, maker);
  for (uint32_t i = 0; i < m->outputs.count; i++) {
    if (nmp_model_port(m->outputs, i) == tensor) {
      return 1;
    }
  }
  for (uint32_t i = maker + 1; i < m->ops.count; i++) {
    const fb_vector inputs = fb_op_inputs(fb_element(m->ops, i));
    if (i == reader) {
      continue;
    }
    if (*budget < inputs.count + 1) {
      return 1;
    }
    *budget -= inputs.count + 1;
    for (uint32_t k = 0; k < inputs.count; k++) {
      if ((uint32_t)fb_int_element(inputs, k) == tensor) {
        return 1;
      }
    }
  }
  return 0;
}
