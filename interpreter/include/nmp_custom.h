/* Custom ops: functions of a program for ops that the interpreter does not have.
 *
 * A model names such an op. The program has a row for it, in the table that nmp_options.custom points to, or compiled
 * in (NMP_BUILD_CUSTOM in src/base/build.h, which `nmpconv bundle` writes).
 */
#ifndef NMP_CUSTOM_H
#define NMP_CUSTOM_H

#include "nmp.h"

#ifdef __cplusplus
extern "C" {
#endif

#define NMP_CUSTOM_INPUTS_MAX 4
#define NMP_CUSTOM_SCRATCH_MAX (1 << 30)

/* A tensor as an op sees it: the elements lie one after the other, the last axis together; value = element *
 * 2^exponent. Those of a custom op are int8 or int16 with one exponent. */
typedef struct nmp_tensor {
  void *data; /* NULL in a check, but of constants, which are never written */
  int32_t shape[NMP_RANK_MAX];
  uint8_t rank;
  uint8_t bits; /* 8, 16, 32 */
  uint8_t is_const;
  int8_t exponent;         /* exponents[0] */
  const int8_t *exponents; /* one, or one per index of axis */
  uint32_t exponent_count;
  int8_t axis;     /* -1: one exponent */
  int32_t lo, hi;  /* what an output saturates to */
  uint32_t size;   /* elements */
  uint32_t offset; /* activations: place in the arena */
} nmp_tensor;

/* scratch: as many bytes as the model says, 16-byte aligned; NULL in a check. They hold anything before a run. */
typedef struct nmp_custom_call {
  const nmp_tensor *inputs;
  uint32_t input_count; /* 1 to NMP_CUSTOM_INPUTS_MAX */
  const nmp_tensor *output;
  const int32_t *attributes; /* little-endian, as they lie in the file */
  uint32_t attribute_count;
  void *scratch;
  uint32_t scratch_bytes;
} nmp_custom_call;

/* check: 1 where run can compute it: shapes, widths, exponents, attributes, scratch_bytes. The file is untrusted, and
 * nothing else looks at these. run: writes all elements of the output, which shares no byte with the inputs. It may be
 * called by several threads at once, for different nets. Both depend on nothing but the call.
 */
typedef struct nmp_custom_op {
  const char *name; /* as in the file; NULL after the last row of a table */
  int (*check)(const nmp_custom_call *call);
  void (*run)(const nmp_custom_call *call);
} nmp_custom_op;

#ifdef __cplusplus
}
#endif

#endif
