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

/* Sizes of short rows are constants where calling a function would take longer than the copy. */
static void copy_bytes(uint8_t *to, const uint8_t *from, size_t n) {
  if (n == 16) {
    memcpy(to, from, 16);
  } else if (n == 32) {
    memcpy(to, from, 32);
  } else if (n == 64) {
    memcpy(to, from, 64);
  } else {
    memcpy(to, from, n);
  }
}

/* Every second element is what a slice often leaves, and what compilers have vectors for. */
#define COPY_STEPS(X)                                                    \
  {                                                                      \
    X *restrict ys = (X *)(void *)to;                                    \
    const X *restrict xs = (const X *)(const void *)from;                \
    for (size_t i = 0; i < n && to_step == 1 && from_step == 2; i++) {   \
      ys[i] = xs[i * 2];                                                 \
    }                                                                    \
    for (size_t i = 0; i < n && (to_step != 1 || from_step != 2); i++) { \
      ys[(ptrdiff_t)i * to_step] = xs[(ptrdiff_t)i * from_step];         \
    }                                                                    \
  }

static void copy_row(uint8_t *to, const uint8_t *from, size_t n, ptrdiff_t to_step, ptrdiff_t from_step, size_t bytes) {
  if (to_step == 1 && from_step == 1) {
    copy_bytes(to, from, n * bytes);
  } else if (bytes == 1) {
    COPY_STEPS(uint8_t)
  } else {
    COPY_STEPS(int16_t)
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

/* n rows of a plane, which the two innermost axes make. */
static void copy_plane(const nmp_op *op, uint8_t *to, const uint8_t *from, const nmp_block *b, size_t n) {
  const uint32_t last = b->rank - 1;
  const size_t bytes = nmp_bytes(&op->out[0]), length = (size_t)b->shape[last];
  const ptrdiff_t unit = (ptrdiff_t)bytes;
  const ptrdiff_t to_row = last > 0 ? b->to[last - 1] * unit : 0, from_row = last > 0 ? b->from[last - 1] * unit : 0;
  if (is_matrix(b)) {
    NMP_BY_1(NMP_IN_USE(op->kernels).transpose, bytes - 1)(to, from, (size_t)b->from[last], length, n);
    return;
  }
  for (size_t i = 0; i < n; i++, to += to_row, from += from_row) {
    copy_row(to, from, length, b->to[last], b->from[last], bytes);
  }
}

typedef struct copy {
  nmp_block block; /* simplified */
  uint8_t *to;
  const uint8_t *from;
} copy;

/* Units are rows along the last axis. */
static void copy_rows(const nmp_op *op, const void *how, size_t first, size_t last) {
  const copy *c = how;
  const nmp_block *b = &c->block;
  const size_t per_plane = b->rank > 1 ? (size_t)b->shape[b->rank - 2] : 1;
  const ptrdiff_t unit = (ptrdiff_t)nmp_bytes(&op->out[0]);
  for (size_t row = first, n; row < last; row += n) {
    size_t rest = row;
    ptrdiff_t target = 0, source = 0;
    n = per_plane - row % per_plane < last - row ? per_plane - row % per_plane : last - row;
    for (uint32_t i = b->rank - 1; i-- > 0;) {
      const ptrdiff_t at = (ptrdiff_t)(rest % (size_t)b->shape[i]);
      rest /= (size_t)b->shape[i];
      target += at * b->to[i];
      source += at * b->from[i];
    }
    copy_plane(op, c->to + target * unit, c->from + source * unit, b, n);
  }
}

void nmp_copy_block(const nmp_op *op, void *to, const void *from, const nmp_block *block) {
  const copy c = {simplify(block), to, from};
  size_t rows = 1, length = (size_t)c.block.shape[c.block.rank - 1];
  for (uint32_t i = 0; i + 1 < c.block.rank; i++) {
    rows *= (size_t)c.block.shape[i];
  }
  nmp_run_parts(op, rows, (uint64_t)rows * length * nmp_bytes(&op->out[0]), copy_rows, &c);
}
