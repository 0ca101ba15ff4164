/* Parts that the checks of ops have in common. The numbers come from an untrusted file. */
#ifndef NMP_OPS_COMMON_CHECK_H
#define NMP_OPS_COMMON_CHECK_H

#include "base/fixed.h"
#include "dispatch.h"
#include "ops/common/op.h"

/* Returns from a check function with the rule that does not hold. */
#define NMP_REQUIRE(condition, what, found, allowed)     \
  do {                                                   \
    if (!(condition)) {                                  \
      return NMP_RULE(NMP_E_OP, (what), found, allowed); \
    }                                                    \
  } while (0)

/* The same for a number from the file and what it has to be. relation: ==, >= or <=. */
#define NMP_COMPARE(found, relation, allowed, what) NMP_REQUIRE((found)relation(allowed), what, found, allowed)

/* NMP_REQUIRE with a condition that holds in builds that have everything. */
#define NMP_REQUIRE_BUILT(condition, what, found, allowed)      \
  do {                                                          \
    if (!(condition)) {                                         \
      return NMP_RULE(NMP_E_NOT_BUILT, (what), found, allowed); \
    }                                                           \
  } while (0)

#define NMP_TRY(check)     \
  do {                     \
    nmp_rule rule = check; \
    if (rule.status) {     \
      return rule;         \
    }                      \
  } while (0)

/* An op has from least to most inputs, and the first `plain` of them are int8 or int16 with one exponent. */
nmp_rule nmp_check_inputs(const nmp_op *op, uint32_t least, uint32_t most, uint32_t plain);

/* t has the width and the exponent of the output. */
nmp_rule nmp_check_same_grid(const nmp_op *op, const nmp_tensor *t);

/* a has the rank and the dims of b. */
nmp_rule nmp_check_same_shape(const nmp_tensor *a, const nmp_tensor *b);

/* t is a constant vector of this many elements and this width with one exponent. */
nmp_rule nmp_check_vector(const nmp_tensor *t, int64_t size, int bits, int exponent);

nmp_rule nmp_check_shift(int shift);

static inline size_t nmp_bytes(const nmp_tensor *t) {
  return NMP_WIDE(t->bits) ? 2 : 1;
}

/* The address of element i. */
static inline void *nmp_at(const nmp_tensor *t, size_t i) {
  return (uint8_t *)t->data + i * nmp_bytes(t);
}

/* Element i of an int8 or int16 tensor. */
static inline int32_t nmp_load(const nmp_tensor *t, size_t i) {
  return NMP_WIDE(t->bits) ? *(const int16_t *)nmp_at(t, i) : *(const int8_t *)nmp_at(t, i);
}

/* Element i becomes sat(value). */
static inline void nmp_store(const nmp_tensor *t, size_t i, int64_t value) {
  const int32_t q = nmp_sat(value, t->lo, t->hi);
  if (NMP_WIDE(t->bits)) {
    *(int16_t *)nmp_at(t, i) = (int16_t)q;
  } else {
    *(int8_t *)nmp_at(t, i) = (int8_t)q;
  }
}

#endif
