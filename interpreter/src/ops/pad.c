/* x inside a border of a constant value; pads are (before, after) of each axis in turn. */
#include <string.h>

#include "ops/common/strided.h"

static nmp_rule pad_check(const nmp_op *op) {
  NMP_TRY(nmp_check_inputs(op, 2, 2, 1));
  const nmp_tensor *x = &op->in[0], *y = &op->out[0];
  const nmp_pad_params *p = &op->params.pad;
  NMP_TRY(nmp_check_same_grid(op, x));
  NMP_TRY(nmp_check_vector(&op->in[1], 1, x->bits, x->exponent));
  NMP_REQUIRE(p->pads_count == 2u * x->rank, "length of pads", p->pads_count, 2 * x->rank);
  NMP_COMPARE(y->rank, ==, x->rank, "rank of the output");
  for (uint32_t i = 0; i < x->rank; i++) {
    const int64_t before = p->pads[2 * (size_t)i], after = p->pads[2 * (size_t)i + 1],
                  size = x->shape[i] + before + after;
    NMP_COMPARE(before, >=, 0, "padding");
    NMP_COMPARE(after, >=, 0, "padding");
    NMP_COMPARE(y->shape[i], ==, size, "dimension of the output");
  }
  return NMP_FINE;
}

static void fill(const nmp_tensor *y, const void *value) {
  if (!NMP_WIDE(y->bits)) {
    memset(y->data, *(const uint8_t *)value, y->size);
  } else {
    for (size_t i = 0; i < y->size; i++) {
      ((int16_t *)y->data)[i] = *(const int16_t *)value;
    }
  }
}

static void pad_run(const nmp_op *op) {
  const nmp_tensor *x = &op->in[0], *y = &op->out[0];
  ptrdiff_t first = 0;
  nmp_block block;
  block.rank = x->rank;
  nmp_strides(x, block.from);
  nmp_strides(y, block.to);
  for (uint32_t i = 0; i < x->rank; i++) {
    block.shape[i] = x->shape[i];
    first += block.to[i] * op->params.pad.pads[2 * (size_t)i];
  }
  fill(y, op->in[1].data);
  nmp_copy_block(op, nmp_at(y, (size_t)first), x->data, &block);
}

const nmp_op_type nmp_pad_type = {.check = pad_check, .run = pad_run};
