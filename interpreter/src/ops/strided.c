#include "strided.h"

#include <string.h>

void nmp_strides(const nmp_tensor *t, ptrdiff_t strides[NMP_RANK_MAX]) {
  ptrdiff_t step = 1;
  for (uint32_t i = t->rank; i-- > 0;) {
    strides[i] = step;
    step *= t->shape[i];
  }
}

static void copy_row(uint8_t *to, const uint8_t *from, size_t n, ptrdiff_t to_step, ptrdiff_t from_step, size_t bytes) {
  if (to_step == 1 && from_step == 1) {
    memcpy(to, from, n * bytes);
  } else if (bytes == 1) {
    for (size_t i = 0; i < n; i++) {
      to[(ptrdiff_t)i * to_step] = from[(ptrdiff_t)i * from_step];
    }
  } else {
    for (size_t i = 0; i < n; i++) {
      ((int16_t *)(void *)to)[(ptrdiff_t)i * to_step] = ((const int16_t *)(const void *)from)[(ptrdiff_t)i * from_step];
    }
  }
}

/* Drops axes of one element and joins neighbours that both sides walk through as one; leaves at least one axis. */
static nmp_block simplify(const nmp_block *b) {
  nmp_block s = {1, {1}, {1}, {1}};
  for (uint32_t i = 0; i < b->rank; i++) {
    const uint32_t last = s.rank - 1;
    const int empty = s.shape[last] == 1;
    if (b->shape[i] == 1) {
      continue;
    }
    if (!empty && s.to[last] == b->to[i] * b->shape[i] && s.from[last] == b->from[i] * b->shape[i]) {
      s.shape[last] *= b->shape[i];
    } else {
      s.rank += empty ? 0 : 1;
      s.shape[s.rank - 1] = b->shape[i];
    }
    s.to[s.rank - 1] = b->to[i];
    s.from[s.rank - 1] = b->from[i];
  }
  return s;
}

/* The two innermost axes change places, and the result has no gaps. */
static int is_matrix(const nmp_block *b) {
  const uint32_t row = b->rank - 1;
  return b->rank > 1 && b->to[row] == 1 && b->to[row - 1] == b->shape[row] && b->from[row - 1] == 1 && b->from[row] > 0;
}

void nmp_copy_block(const nmp_op *op, void *to, const void *from, const nmp_block *block) {
  const nmp_block b = simplify(block);
  const int matrix = is_matrix(&b);
  const uint32_t last = b.rank - 1, row = matrix ? last - 1 : last;
  const size_t bytes = nmp_bytes(&op->out[0]);
  const ptrdiff_t unit = (ptrdiff_t)bytes;
  size_t rows = 1;
  for (uint32_t i = 0; i < row; i++) {
    rows *= (size_t)b.shape[i];
  }
  for (size_t index = 0; index < rows; index++) {
    size_t rest = index;
    ptrdiff_t target = 0, source = 0;
    for (uint32_t i = row; i-- > 0;) {
      const ptrdiff_t at = (ptrdiff_t)(rest % (size_t)b.shape[i]);
      rest /= (size_t)b.shape[i];
      target += at * b.to[i];
      source += at * b.from[i];
    }
    uint8_t *y = (uint8_t *)to + target * unit;
    const uint8_t *x = (const uint8_t *)from + source * unit;
    if (matrix) {
      NMP_BY_1(NMP_IN_USE(op->kernels).transpose, bytes - 1)(y, x, (size_t)b.from[last], (size_t)b.shape[last],
                                                             (size_t)b.shape[row]);
    } else {
      copy_row(y, x, (size_t)b.shape[row], b.to[row], b.from[row], bytes);
    }
  }
}
