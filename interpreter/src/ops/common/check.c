#include "ops/common/check.h"

nmp_rule nmp_check_inputs(const nmp_op *op, uint32_t least, uint32_t most, uint32_t plain) {
  NMP_COMPARE(op->input_count, >=, least, "number of inputs");
  NMP_COMPARE(op->input_count, <=, most, "number of inputs");
  for (uint32_t i = 0; i < plain; i++) {
    NMP_REQUIRE(op->in[i].bits == 8 || op->in[i].bits == 16, "bits of an input", op->in[i].bits, 16);
    NMP_REQUIRE_BUILT(NMP_WIDE(op->in[i].bits) == (op->in[i].bits == 16), "bits of an input in this build",
                      op->in[i].bits, NMP_ACTIVATION_BITS);
    NMP_COMPARE(op->in[i].exponent_count, ==, 1, "exponents of an input");
  }
  return NMP_FINE;
}

nmp_rule nmp_check_same_grid(const nmp_op *op, const nmp_tensor *t) {
  NMP_COMPARE(t->bits, ==, op->out[0].bits, "bits of an input");
  NMP_COMPARE(t->exponent_count, ==, 1, "exponents of an input");
  NMP_COMPARE(t->exponent, ==, op->out[0].exponent, "exponent of an input");
  return NMP_FINE;
}

nmp_rule nmp_check_same_shape(const nmp_tensor *a, const nmp_tensor *b) {
  NMP_COMPARE(a->rank, ==, b->rank, "rank");
  for (uint32_t i = 0; i < a->rank; i++) {
    NMP_COMPARE(a->shape[i], ==, b->shape[i], "dimension");
  }
  return NMP_FINE;
}

nmp_rule nmp_check_vector(const nmp_tensor *t, int64_t size, int bits, int exponent) {
  NMP_REQUIRE(t->is_const, "constant input", 0, 1);
  NMP_COMPARE(t->rank, ==, 1, "rank of a constant");
  NMP_COMPARE(t->shape[0], ==, size, "length of a constant");
  NMP_COMPARE(t->bits, ==, bits, "bits of a constant");
  NMP_COMPARE(t->exponent_count, ==, 1, "exponents of a constant");
  NMP_COMPARE(t->exponent, ==, exponent, "exponent of a constant");
  return NMP_FINE;
}

nmp_rule nmp_check_shift(int shift) {
  NMP_COMPARE(shift, >=, NMP_SHIFT_MIN, "shift");
  NMP_COMPARE(shift, <=, NMP_SHIFT_MAX, "shift");
  return NMP_FINE;
}
