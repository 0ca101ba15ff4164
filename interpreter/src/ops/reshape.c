/* The same elements in another shape; nothing to do when the plan puts the output onto the input. */
#include <string.h>

#include "ops/common/check.h"

static nmp_rule reshape_check(const nmp_op *op) {
  NMP_TRY(nmp_check_inputs(op, 1, 1, 1));
  const nmp_tensor *x = &op->in[0], *y = &op->out[0];
  const nmp_reshape_params *p = &op->params.reshape;
  NMP_TRY(nmp_check_same_grid(op, x));
  NMP_COMPARE(y->size, ==, x->size, "elements of the output");
  NMP_COMPARE(p->shape_count, ==, y->rank, "length of shape");
  for (uint32_t i = 0; i < y->rank; i++) {
    NMP_COMPARE(y->shape[i], ==, p->shape[i], "dimension of the output");
  }
  return NMP_FINE;
}

static void reshape_run(const nmp_op *op) {
  const nmp_tensor *x = &op->in[0], *y = &op->out[0];
  if (y->data != x->data) {
    memcpy(y->data, x->data, x->size * nmp_bytes(x));
  }
}

const nmp_op_type nmp_reshape_type = {.check = reshape_check, .run = reshape_run, .in_place = 1};
