/* y[..., j, ...] = x[..., k, ...] along an axis, k = i[..., j, ...]. From the end where it is negative, and the nearest
 * one that there is where there is none. Beside the axis i has the size of x, or 1: one index for all of x.
 */
#include <string.h>

#include "ops/common/tasks.h"

static nmp_rule gather_elements_check(const nmp_op *op) {
  NMP_TRY(nmp_check_inputs(op, 2, 2, 2));
  const nmp_tensor *x = &op->in[0], *index = &op->in[1], *y = &op->out[0];
  const int32_t axis = op->params.gather_elements.axis;
  NMP_TRY(nmp_check_same_grid(op, x));
  NMP_COMPARE(index->exponent, ==, 0, "exponent of the indices");
  NMP_COMPARE(index->rank, ==, x->rank, "rank of the indices");
  NMP_COMPARE(y->rank, ==, x->rank, "rank of the output");
  NMP_COMPARE(axis, >=, 0, "axis");
  NMP_REQUIRE(axis < x->rank, "axis", axis, x->rank - 1);
  for (int32_t i = 0; i < x->rank; i++) {
    const int32_t size = i == axis ? index->shape[i] : x->shape[i];
    NMP_COMPARE(y->shape[i], ==, size, "dimension of the output");
    NMP_REQUIRE(index->shape[i] == size || index->shape[i] == 1, "dimension of the indices", index->shape[i], size);
  }
  return NMP_FINE;
}

/* The axes from here on, behind the axis, have one index for all of x. */
static int32_t block_axis(const nmp_op *op) {
  int32_t first = op->in[0].rank;
  while (first > op->params.gather_elements.axis + 1 && op->in[1].shape[first - 1] == 1) {
    first--;
  }
  return first;
}

static size_t elements(const nmp_tensor *t, int32_t first, int32_t last) {
  size_t n = 1;
  for (int32_t i = first; i < last; i++) {
    n *= (size_t)t->shape[i];
  }
  return n;
}

/* Place of the indices, and the block of the axis's first element of x that they choose from, for a block of y. */
typedef struct place {
  size_t index, x;
} place;

static place place_of(const nmp_op *op, int32_t end, size_t block) {
  const nmp_tensor *x = &op->in[0], *index = &op->in[1], *y = &op->out[0];
  size_t index_step = 1, x_step = 1;
  place found = {0, 0};
  for (int32_t i = end; i-- > 0;) {
    const size_t size = (size_t)y->shape[i], at = block % size;
    block /= size;
    found.index += index->shape[i] == 1 ? 0 : at * index_step;
    found.x += i == op->params.gather_elements.axis ? 0 : at * x_step;
    index_step *= (size_t)index->shape[i];
    x_step *= (size_t)x->shape[i];
  }
  return found;
}

static size_t chosen(int32_t q, int32_t n) {
  const int32_t k = q < 0 ? q + n : q;
  return (size_t)(k < 0 ? 0 : k < n ? k : n - 1);
}

static void run_blocks(const nmp_op *op, const void *how, size_t first, size_t last) {
  const nmp_tensor *x = &op->in[0], *y = &op->out[0];
  const int32_t axis = op->params.gather_elements.axis, end = block_axis(op);
  const size_t bytes = elements(x, end, x->rank) * nmp_bytes(x), step = elements(x, axis + 1, end);
  uint8_t *to = (uint8_t *)y->data + first * bytes;
  (void)how;
  for (size_t block = first; block < last; block++, to += bytes) {
    const place at = place_of(op, end, block);
    const size_t k = chosen(nmp_load(&op->in[1], at.index), x->shape[axis]);
    memcpy(to, (const uint8_t *)x->data + (at.x + k * step) * bytes, bytes);
  }
}

static void gather_elements_run(const nmp_op *op) {
  const nmp_tensor *y = &op->out[0];
  nmp_run_tasks(op, elements(y, 0, block_axis(op)), y->size * nmp_bytes(y), run_blocks, NULL);
}

const nmp_op_type nmp_gather_elements_type = {.check = gather_elements_check, .run = gather_elements_run};
