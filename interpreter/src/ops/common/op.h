/* Ops in C: a row of functions over plain tensors. Ops never see flatbuffers, kernels never see ops.
 *
 * core/decode.c turns an op of the file into an nmp_op: pointers into the file and the arena, and plain numbers.
 */
#ifndef NMP_OPS_COMMON_OP_H
#define NMP_OPS_COMMON_OP_H

#include "gen/nmp_params.h" /* generated: struct nmp_conv2d_params, ..., union nmp_params, enum nmp_op_kind */
#include "kernels/kernels.h"
#include "nmp.h"
#include "nmp_custom.h"

#define NMP_OP_INPUTS_MAX 4 /* of ops with a fixed number; concat reads them through nmp_op.input_at */

typedef struct nmp_op nmp_op;
typedef struct nmp_op_type nmp_op_type;
struct nmp_op {
  const nmp_op_type *type;
  uint32_t input_count, output_count;
  nmp_tensor in[NMP_OP_INPUTS_MAX]; /* the first ones */
  nmp_tensor out[1];
#if NMP_CONV_ADD
  nmp_tensor added; /* the first input of an op that adds, which is none of `in` */
#endif
  union nmp_params params;
  const void *model, *table;                                     /* for input_at */
  void (*input_at)(const nmp_op *op, uint32_t i, nmp_tensor *t); /* any input, for ops with many */
  void *scratch;
#if NMP_TWO_MEMORIES
  uint32_t scratch_room; /* bytes in the fast memory, where the scratch lies if they suffice */
  uint8_t slow;          /* out lies in the slow memory */
#endif
  const nmp_kernels *kernels;
  const nmp_options *threads; /* parallel may be NULL */
  /* With NMP_KEEP_STEPS: */
  const struct nmp_conv_call *call; /* of a convolution (weighted.h) */
  uint32_t placed;                  /* bit k: input k of a concatenation lies in out already */
};

/* A rule that the file breaks, and the status of that; or NMP_OK. With NMP_FAULT_DETAILS it says what, with what was
 * found and what is allowed.
 */
#if NMP_FAULT_DETAILS
typedef struct nmp_rule {
  nmp_status status;
  const char *what;
  int64_t found, allowed;
} nmp_rule;
#define NMP_RULE(status, what, found, allowed) ((nmp_rule){status, what, (int64_t)(found), (int64_t)(allowed)})
#else
typedef struct nmp_rule {
  nmp_status status;
} nmp_rule;
#define NMP_RULE(status, what, found, allowed) ((void)(found), (void)(allowed), (nmp_rule){status})
#endif
#define NMP_FINE NMP_RULE(NMP_OK, NULL, 0, 0)

/* check, scratch, place, overlap and work are called while a file is verified, check first. There is no arena then:
 * only constants have data, and scratch is NULL. They may be called again, with the same result. The caller has checked
 * each tensor by itself (rank, dims >= 1, bytes < 2^31, activations are int8 or int16 with one exponent, exponents and
 * clip ranges in range) and that there is one output, an activation.
 */
struct nmp_op_type {
  nmp_rule (*check)(
      const nmp_op *op); /* everything that run relies on: counts, ranks, shapes, widths, exponents, shifts */
  size_t (*scratch)(const nmp_op *op); /* bytes, 16-byte aligned; NULL: none */
  void (*run)(const nmp_op *op);
  void (*conv)(const nmp_op *op, struct nmp_conv *c); /* which convolution it is; NULL: none */
  uint8_t adds;                                       /* to the sums of a convolution: nmp_op.added */
  uint8_t in_place;                                   /* out may lie exactly on in[0] */
  uint8_t by_rows; /* a row of out (shape[1]) needs that row of the inputs alone, or all of one that has no rows */
  /* The byte of out at which input k may lie, so that it is there already; -1: nowhere. NULL: no input may. */
  int64_t (*place)(const nmp_op *op, uint32_t k);
  /* True when out may share bytes with in[0] as they lie; scratch and run see to it by their offsets. NULL: never. */
  int (*overlap)(const nmp_op *op);
  uint64_t (*work)(const nmp_op *op); /* bound of the steps of a run; NULL: the elements of inputs and output */
};

/* custom.c: in place of a program's table. What a model says of its custom ops is checked, but they are not looked for
 * and cannot be run. */
extern const nmp_custom_op nmp_custom_any[1];

#endif
