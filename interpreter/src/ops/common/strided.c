#include "ops/common/strided.h"

#include "ops/common/tasks.h"

void nmp_strides(const nmp_tensor *t, ptrdiff_t strides[NMP_RANK_MAX]) {
  ptrdiff_t step = 1;
  for (uint32_t i = t->rank; i-- > 0;) {
    strides[i] = step;
    step *= t->shape[i];
  }
}

#define LINE_WORK 16 /* of beginning a line, in bytes */

#define COPY_EACH(call)            \
  for (size_t i = 0; i < n; i++) { \
    call;                          \
    to += to_step;                 \
    from += from_step;             \
  }                                \
  break;
#define COPY_CASE(size) \
  case size:            \
    COPY_EACH(memcpy(to, from, size))

#if NMP_QUICK_ROWS
#define ROW_SIZES(K) K(16) K(32) K(64)
#else
#define ROW_SIZES(K) NMP_SHORT_COPIES(K)
#endif

/* n rows; short ones of a size that the compiler knows. */
static void copy_rows(uint8_t *to, const uint8_t *from, size_t n, ptrdiff_t to_step, ptrdiff_t from_step,
                      size_t bytes) {
  switch (bytes) {
    ROW_SIZES(COPY_CASE)
    default:
      COPY_EACH(nmp_copy_bytes(to, from, bytes))
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

/* A row with gaps. */
static void copy_row(uint8_t *to, const uint8_t *from, size_t n, ptrdiff_t to_step, ptrdiff_t from_step, size_t bytes) {
  if (bytes == 1) {
    COPY_STEPS(uint8_t)
  } else {
    COPY_STEPS(int16_t)
  }
}

/* Drops axes of one element and joins neighbours that both sides walk through as one; leaves at least one axis. */
static void simplify(const nmp_block *b, nmp_block *s) {
  s->rank = 1;
  s->shape[0] = 1;
  s->to[0] = s->from[0] = 1;
  for (uint32_t i = 0; i < b->rank; i++) {
    const uint32_t last = s->rank - 1;
    const int empty = s->shape[last] == 1;
    if (b->shape[i] == 1) {
      continue;
    }
    if (!empty && s->to[last] == b->to[i] * b->shape[i] && s->from[last] == b->from[i] * b->shape[i]) {
      s->shape[last] *= b->shape[i];
    } else {
      s->rank += empty ? 0 : 1;
      s->shape[s->rank - 1] = b->shape[i];
    }
    s->to[s->rank - 1] = b->to[i];
    s->from[s->rank - 1] = b->from[i];
  }
}

static void swap(ptrdiff_t *strides, uint32_t i, uint32_t k) {
  const ptrdiff_t first = strides[i];
  strides[i] = strides[k];
  strides[k] = first;
}

/* The axis along which elements of `from` are neighbours goes beside the innermost one, along which those of `to` are,
 * so that both are lines of a matrix. Any order of the axes is the same copy.
 */
static void make_matrix(nmp_block *b) {
  const uint32_t row = b->rank - 1;
  for (uint32_t i = 0; i + 1 < row; i++) {
    if (b->from[i] == 1) {
      const int32_t size = b->shape[i];
      b->shape[i] = b->shape[row - 1];
      b->shape[row - 1] = size;
      swap(b->to, i, row - 1);
      swap(b->from, i, row - 1);
    }
  }
}

/* The two innermost axes change places. Steps of `to` are not negative, and those of `from` only where axes keep their
 * order: then that of the inner one alone may be 1.
 */
static int is_matrix(const nmp_block *b) {
  const uint32_t row = b->rank - 1;
  return b->rank > 1 && b->to[row] == 1 && b->from[row - 1] == 1;
}

typedef struct copy {
  nmp_block block; /* simplified */
  uint8_t *to;
  const uint8_t *from;
} copy;

/* n lines of the two innermost axes, or the only one. */
static void copy_lines(const nmp_op *op, const nmp_block *b, uint8_t *to, const uint8_t *from, size_t n) {
  const uint32_t last = b->rank - 1;
  const size_t bytes = nmp_bytes(&op->out[0]), length = (size_t)b->shape[last];
  const ptrdiff_t unit = (ptrdiff_t)bytes;
  if (is_matrix(b)) {
    NMP_BY_1(NMP_IN_USE(op->kernels).transpose, bytes - 1)
    (to, (size_t)b->to[last - 1], from, (size_t)b->from[last], length, n);
    return;
  }
  const ptrdiff_t to_step = last > 0 ? b->to[last - 1] * unit : 0;
  const ptrdiff_t from_step = last > 0 ? b->from[last - 1] * unit : 0;
  if (b->to[last] == 1 && b->from[last] == 1) {
    copy_rows(to, from, n, to_step, from_step, length * bytes);
    return;
  }
  for (size_t i = 0; i < n; i++) {
    copy_row(to, from, length, b->to[last], b->from[last], bytes);
    to += to_step;
    from += from_step;
  }
}

/* Units are lines along the last axis. */
static void copy_part(const nmp_op *op, const void *how, size_t first, size_t last) {
  const copy *c = how;
  const nmp_block *b = &c->block;
  const uint32_t axis = b->rank > 1 ? b->rank - 2 : 0; /* of lines, in planes */
  const size_t lines = b->rank > 1 ? (size_t)b->shape[axis] : 1;
  const ptrdiff_t unit = (ptrdiff_t)nmp_bytes(&op->out[0]);
  for (size_t at = first, n; at < last; at += n) {
    const size_t line = at % lines;
    size_t rest = at / lines;
    ptrdiff_t to = (ptrdiff_t)line * b->to[axis], from = (ptrdiff_t)line * b->from[axis];
    for (uint32_t i = axis; i-- > 0;) {
      const ptrdiff_t index = (ptrdiff_t)(rest % (size_t)b->shape[i]);
      rest /= (size_t)b->shape[i];
      to += index * b->to[i];
      from += index * b->from[i];
    }
    n = lines - line < last - at ? lines - line : last - at;
    copy_lines(op, b, c->to + to * unit, c->from + from * unit, n);
  }
}

void nmp_copy_block(const nmp_op *op, void *to, const void *from, const nmp_block *block) {
  copy c;
  c.to = to;
  c.from = from;
  simplify(block, &c.block);
  size_t lines = 1, length = (size_t)c.block.shape[c.block.rank - 1];
  make_matrix(&c.block);
  for (uint32_t i = 0; i + 1 < c.block.rank; i++) {
    lines *= (size_t)c.block.shape[i];
  }
  nmp_run_tasks(op, lines, lines * (LINE_WORK + (uint64_t)length * nmp_bytes(&op->out[0])), copy_part, &c);
}

#if NMP_QUICK_ROWS
void nmp_copy_rows(const nmp_op *op, void *to, const void *from, int32_t n, int32_t to_step, int32_t from_step,
                   int32_t length) {
  const size_t bytes = nmp_bytes(&op->out[0]);
  copy_rows((uint8_t *)to, (const uint8_t *)from, (size_t)n, to_step * (ptrdiff_t)bytes, from_step * (ptrdiff_t)bytes,
            (size_t)length * bytes);
}
#endif
