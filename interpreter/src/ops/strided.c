#include "strided.h"

#include <string.h>

#include "parts.h"

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

typedef struct copy {
  nmp_block block; /* simplified */
  int matrix;
  uint8_t *to;
  const uint8_t *from;
} copy;

/* Units are rows along the last axis. */
static void copy_rows(const nmp_op *op, const void *how, size_t first, size_t last) {
  const copy *c = how;
  const nmp_block *b = &c->block;
  const uint32_t inner = b->rank - 1, outer = c->matrix ? inner - 1 : inner;
  const size_t bytes = nmp_bytes(&op->out[0]), per_index = c->matrix ? (size_t)b->shape[outer] : 1;
  const ptrdiff_t unit = (ptrdiff_t)bytes;
  for (size_t at = first, n; at < last; at += n) {
    const size_t line = at % per_index;
    size_t rest = at / per_index;
    ptrdiff_t target = 0, source = 0;
    n = per_index - line < last - at ? per_index - line : last - at;
    for (uint32_t i = outer; i-- > 0;) {
      const ptrdiff_t index = (ptrdiff_t)(rest % (size_t)b->shape[i]);
      rest /= (size_t)b->shape[i];
      target += index * b->to[i];
      source += index * b->from[i];
    }
    uint8_t *y = c->to + target * unit;
    const uint8_t *x = c->from + source * unit;
    if (c->matrix) {
      y += (ptrdiff_t)line * b->to[outer] * unit;
      x += (ptrdiff_t)line * b->from[outer] * unit;
      NMP_BY_1(NMP_IN_USE(op->kernels).transpose, bytes - 1)(y, x, (size_t)b->from[inner], (size_t)b->shape[inner], n);
    } else {
      copy_row(y, x, (size_t)b->shape[inner], b->to[inner], b->from[inner], bytes);
    }
  }
}

void nmp_copy_block(const nmp_op *op, void *to, const void *from, const nmp_block *block) {
  copy c = {simplify(block), 0, to, from};
  c.matrix = is_matrix(&c.block);
  size_t rows = 1, length = (size_t)c.block.shape[c.block.rank - 1];
  for (uint32_t i = 0; i + 1 < c.block.rank; i++) {
    rows *= (size_t)c.block.shape[i];
  }
  nmp_run_parts(op, rows, (uint64_t)rows * length * nmp_bytes(&op->out[0]), copy_rows, &c);
}
