/* y[..., i, ...] = x[..., index[i], ...] along an axis. */
#include <string.h>

#include "ops/common/strided.h"
#include "ops/common/tasks.h"

static nmp_rule gather_check(const nmp_op *op) {
  NMP_TRY(nmp_check_inputs(op, 1, 1, 1));
  const nmp_tensor *x = &op->in[0], *y = &op->out[0];
  const nmp_gather_params *p = &op->params.gather;
  NMP_TRY(nmp_check_same_grid(op, x));
  NMP_COMPARE(y->rank, ==, x->rank, "rank of the output");
  NMP_COMPARE(p->axis, >=, 0, "axis");
  NMP_REQUIRE(p->axis < x->rank, "axis", p->axis, x->rank - 1);
  for (int32_t i = 0; i < x->rank; i++) {
    const int64_t size = i == p->axis ? (int64_t)p->index_count : x->shape[i];
    NMP_COMPARE(y->shape[i], ==, size, "dimension of the output");
  }
  for (uint32_t i = 0; i < p->index_count; i++) {
    NMP_COMPARE(p->index[i], >=, 0, "index");
    NMP_REQUIRE(p->index[i] < x->shape[p->axis], "index", p->index[i], x->shape[p->axis] - 1);
  }
  return NMP_FINE;
}

/* Bytes of what one index chooses. */
static size_t row_bytes(const nmp_op *op) {
  const nmp_tensor *x = &op->in[0];
  size_t row = nmp_bytes(x);
  for (int32_t i = op->params.gather.axis + 1; i < x->rank; i++) {
    row *= (size_t)x->shape[i];
  }
  return row;
}

#define SHORT_ROW (NMP_FIXED_CPU ? 0 : 63) /* bytes that are copied before a function is called */

#define GATHER_EACH(call)                             \
  for (size_t i = 0; i < n; i++) {                    \
    uint8_t *y = to + i * row;                        \
    const uint8_t *x = from + row * (size_t)index[i]; \
    call;                                             \
  }                                                   \
  break;
#define GATHER_CASE(size) \
  case size:              \
    GATHER_EACH(memcpy(y, x, size))

/* The rows of n indices; short ones of a size that the compiler knows. */
static void copy_chosen(uint8_t *to, const uint8_t *from, const int32_t *index, size_t n, size_t row) {
  switch (row) {
    NMP_SHORT_COPIES(GATHER_CASE)
    default:
      if (row <= SHORT_ROW) {
        GATHER_EACH(nmp_copy_bytes(y, x, row))
      }
      GATHER_EACH(memcpy(y, x, row))
  }
}

#define GATHER_ELEMENTS(X)                                \
  {                                                       \
    X *restrict ys = (X *)(void *)to;                     \
    const X *restrict xs = (const X *)(const void *)from; \
    for (size_t i = 0; i < n; i++) {                      \
      ys[i] = xs[index[i]];                               \
    }                                                     \
  }

/* Rows of one element. */
static void copy_elements(uint8_t *to, const uint8_t *from, const int32_t *index, size_t n, size_t bytes) {
  if (bytes == 1) {
    GATHER_ELEMENTS(uint8_t)
  } else {
    GATHER_ELEMENTS(int16_t)
  }
}

static void run_rows(const nmp_op *op, const void *how, size_t first, size_t last) {
  const nmp_tensor *x = &op->in[0];
  const nmp_gather_params *p = &op->params.gather;
  const size_t row = row_bytes(op), group = row * (size_t)x->shape[p->axis];
  (void)how;
  for (size_t at = first, n; at < last; at += n) {
    const size_t i = at % p->index_count;
    n = p->index_count - i < last - at ? p->index_count - i : last - at;
    uint8_t *to = (uint8_t *)op->out[0].data + at * row;
    const uint8_t *from = (const uint8_t *)x->data + at / p->index_count * group;
    if (row == nmp_bytes(x)) {
      copy_elements(to, from, p->index + i, n, row);
    } else {
      copy_chosen(to, from, p->index + i, n, row);
    }
  }
}

#if !NMP_FIXED_CPU
#define LONG_SHUFFLE 64 /* bytes of one place, from which a transpose is faster than elements are */

/* Single elements whose places are a block that hosts copy faster by vectors: even steps, runs of neighbours, or long
 * channel shuffles.
 */
static int is_block(const nmp_op *op, nmp_block *block) {
  const nmp_tensor *x = &op->in[0], *y = &op->out[0];
  const nmp_gather_params *p = &op->params.gather;
  const int32_t *index = p->index, count = (int32_t)p->index_count;
  int32_t line = 1;
  if (count < 2 || row_bytes(op) != nmp_bytes(y)) {
    return 0;
  }
  const int32_t inner = index[1] - index[0];
  while (line < count && index[line] - index[line - 1] == inner) {
    line++;
  }
  const int32_t outer = line < count ? index[line] - index[0] : 1;
  for (int32_t i = line; i < count; i++) {
    if (index[i] - index[i - line] != outer) {
      return 0;
    }
  }
  const int is_shuffle = outer == 1 && inner > 0 && (size_t)count * nmp_bytes(y) >= LONG_SHUFFLE;
  if (count % line != 0 || (line < count && inner != 1 && !is_shuffle)) {
    return 0;
  }
  const nmp_block found = {.rank = 3,
                           .shape = {(int32_t)(y->size / p->index_count), count / line, line},
                           .to = {count, line, 1},
                           .from = {x->shape[p->axis], outer, inner}};
  *block = found;
  return 1;
}

#endif

static void gather_run(const nmp_op *op) {
  const nmp_tensor *y = &op->out[0];
  const size_t bytes = y->size * nmp_bytes(y);
#if !NMP_FIXED_CPU
  nmp_block block;
  if (is_block(op, &block)) {
    const uint8_t *from = (const uint8_t *)op->in[0].data + (size_t)op->params.gather.index[0] * nmp_bytes(y);
    nmp_copy_block(op, y->data, from, &block);
    return;
  }
#endif
  nmp_run_tasks(op, bytes / row_bytes(op), bytes, run_rows, NULL);
}

const nmp_op_type nmp_gather_type = {.check = gather_check, .run = gather_run};
