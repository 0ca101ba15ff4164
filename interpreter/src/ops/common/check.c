#include "ops/common/check.h"

nmp_rule nmp_check_inputs(const nmp_op *op, uint32_t least, uint32_t most, uint32_t plain) {
  NMP_REQUIRE(op->input_count >= least, "number of inputs", op->input_count, least);
  NMP_REQUIRE(op->input_count <= most, "number of inputs", op->input_count, most);
  for (uint32_t i = 0; i < plain; i++) {
    NMP_REQUIRE(op->in[i].bits == 8 || op->in[i].bits == 16, "bits of an input", op->in[i].bits, 16);
    NMP_REQUIRE_BUILT(NMP_WIDE(op->in[i].bits) == (op->in[i].bits == 16), "bits of an input in this build",
                      op->in[i].bits, NMP_ACTIVATION_BITS);
    NMP_REQUIRE(op->in[i].exponent_count == 1, "exponents of an input", op->in[i].exponent_count, 1);
  }
  return NMP_FINE;
}

nmp_rule nmp_check_same_grid(const nmp_op *op, const nmp_tensor *t) {
  NMP_REQUIRE(t->bits == op->out[0].bits, "bits of an input", t->bits, op->out[0].bits);
  NMP_REQUIRE(t->exponent_count == 1, "exponents of an input", t->exponent_count, 1);
  NMP_REQUIRE(t->exponent == op->out[0].exponent, "exponent of an input", t->exponent, op->out[0].exponent);
  return NMP_FINE;
}

nmp_rule nmp_check_same_shape(const nmp_tensor *a, const nmp_tensor *b) {
  NMP_REQUIRE(a->rank == b->rank, "rank", a->rank, b->rank);
  for (uint32_t i = 0; i < a->rank; i++) {
    NMP_REQUIRE(a->shape[i] == b->shape[i], "dimension", a->shape[i], b->shape[i]);
  }
  return NMP_FINE;
}

nmp_rule nmp_check_vector(const nmp_tensor *t, int64_t size, int bits, int exponent) {
  NMP_REQUIRE(t->is_const, "constant input", 0, 1);
  NMP_REQUIRE(t->rank == 1, "rank of a constant", t->rank, 1);
  NMP_REQUIRE(t->shape[0] == size, "length of a constant", t->shape[0], size);
  NMP_REQUIRE(t->bits == bits, "bits of a constant", t->bits, bits);
  NMP_REQUIRE(t->exponent_count == 1, "exponents of a constant", t->exponent_count, 1);
  NMP_REQUIRE(t->exponent == exponent, "exponent of a constant", t->exponent, exponent);
  return NMP_FINE;
}

nmp_rule nmp_check_shift(int shift) {
  NMP_REQUIRE(shift >= NMP_SHIFT_MIN, "shift", shift, NMP_SHIFT_MIN);
  NMP_REQUIRE(shift <= NMP_SHIFT_MAX, "shift", shift, NMP_SHIFT_MAX);
  return NMP_FINE;
}
