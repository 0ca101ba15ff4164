/* y = sat(rsh(rsh((a * 2^6 + offset_a) * b, e_y - e_a - e_b) + offset_y, 6)); numpy broadcasting. */
#include "ops/common/broadcast.h"

#define OFFSET_MAX 16384

static int shift(const nmp_op *op) {
  return op->out[0].exponent - op->in[0].exponent - op->in[1].exponent;
}

static nmp_rule mul_offset_check(const nmp_op *op) {
  const int32_t a = op->params.mul_offset.offset_a, y = op->params.mul_offset.offset_y;
  NMP_TRY(nmp_check_broadcast(op));
  NMP_COMPARE(op->in[0].bits, ==, 8, "bits of the first operand");
  NMP_COMPARE(a, >=, -OFFSET_MAX, "offset of the first operand");
  NMP_COMPARE(a, <=, OFFSET_MAX, "offset of the first operand");
  NMP_COMPARE(op->out[0].bits, ==, 8, "bits of the result");
  NMP_COMPARE(y, >=, -OFFSET_MAX, "offset of the result");
  NMP_COMPARE(y, <=, OFFSET_MAX, "offset of the result");
  return nmp_check_shift(shift(op));
}

#if defined(NMP_MVE) || defined(NMP_RVV)
#define BLOCK 64

/* int16 in between, block by block, so all three steps are kernels. A product that int16 does not hold lies beyond any
 * [lo, hi] with its offset, too.
 */
typedef struct moved {
  nmp_binary how; /* of the product */
  nmp_mul_fn *multiply;
  nmp_add_fn *before, *after;
  nmp_binary first, last;
  int16_t offset_a[BLOCK], offset_y[BLOCK];
  size_t b_bytes;
} moved;

static void multiply_moved(void *y, const void *a, const void *b, size_t n, const nmp_binary *how) {
  const moved *m = (const moved *)(const void *)how;
  int16_t wide[BLOCK], products[BLOCK];
  for (size_t at = 0, count; at < n; at += count) {
    count = n - at < BLOCK ? n - at : BLOCK;
    m->before(wide, (const int8_t *)a + at * how->a_step, m->offset_a, how->a_step ? count : 1, &m->first);
    m->multiply(products, wide, (const uint8_t *)b + at * how->b_step * m->b_bytes, count, how);
    m->after((int8_t *)y + at, products, m->offset_y, count, &m->last);
  }
}

static void mul_offset_run(const nmp_op *op) {
  const nmp_tensor *b = &op->in[1], *y = &op->out[0];
  moved m = {
      .how = {.shift = shift(op), .lo = INT16_MIN, .hi = INT16_MAX},
      .multiply = NMP_BY_3(NMP_IN_USE(op->kernels).mul, 1, NMP_WIDE(b->bits), 1),
      .before = NMP_BY_3(NMP_IN_USE(op->kernels).add, 0, 1, 1),
      .after = NMP_BY_3(NMP_IN_USE(op->kernels).add, 1, 1, 0),
      .first = {.a_step = 1, .b_step = 1, .a_shift = NMP_OFFSET_BITS, .lo = INT16_MIN, .hi = INT16_MAX},
      .last = {.a_step = 1, .b_step = 1, .shift = NMP_OFFSET_BITS, .lo = y->lo, .hi = y->hi},
      .b_bytes = nmp_bytes(b),
  };
  for (size_t i = 0; i < BLOCK; i++) {
    m.offset_a[i] = (int16_t)op->params.mul_offset.offset_a;
    m.offset_y[i] = (int16_t)op->params.mul_offset.offset_y;
  }
  nmp_broadcast(op, multiply_moved, &m.how);
}
#else
static void mul_offset_run(const nmp_op *op) {
  nmp_moved m = {.how = {.shift = shift(op), .lo = op->out[0].lo, .hi = op->out[0].hi},
                 .offset_a = op->params.mul_offset.offset_a,
                 .offset_y = op->params.mul_offset.offset_y};
  nmp_broadcast(op, NMP_BY_1(NMP_IN_USE(op->kernels).mul_offset, NMP_WIDE(op->in[1].bits)), &m.how);
}
#endif

const nmp_op_type nmp_mul_offset_type = {.check = mul_offset_check, .run = mul_offset_run, .in_place = 1, .by_rows = 1};
