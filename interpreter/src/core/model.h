/* A file as a model: opening, verifying what it means, decoding tensors and ops. */
#ifndef NMP_CORE_MODEL_H
#define NMP_CORE_MODEL_H

#include "base/fb.h"
#include "nmp.h"
#include "ops/common/op.h"

#define NMP_ALIGN 16              /* of the file, the arena and every offset in it */
#define NMP_BYTES_MAX 0x7fffffffu /* of a file, a tensor, all activations and the scratch, each */
#define NMP_PACK_ALIGN 64
#define NMP_WORK_MAX ((uint64_t)1 << 40)

typedef struct nmp_model {
  const uint8_t *file, *root;
  uint8_t *arena; /* activations, with a fast memory those that are not there; NULL before create */
  fb_vector tensors, ops, inputs, outputs;
  uint32_t bytes, arena_bytes;
  /* Kernels that its ops are computed with, set by whoever opens it. */
  const nmp_kernels *kernels;
  const nmp_options *options;
#if NMP_TWO_MEMORIES
  uint8_t *fast;       /* what has offsets below fast_bytes */
  uint32_t fast_bytes; /* 0: nothing */
#endif
} nmp_model;

#if NMP_TWO_MEMORIES
#define NMP_FAST_BYTES(m) ((m)->fast_bytes)
#else
#define NMP_FAST_BYTES(m) 0u
#endif

/* Findings of the verification, and how many steps it has left. */
typedef struct nmp_needs {
  uint32_t arena;   /* bytes of activations, with each op's scratch behind what is alive while it runs */
  uint32_t scratch; /* bytes of the hungriest op */
  uint32_t packed;  /* bytes of all ops, each a multiple of NMP_PACK_ALIGN */
  uint64_t work;
  uint64_t budget;
} nmp_needs;

/* Bits of a legal dtype, which are int8, int16, int32. */
static inline uint8_t nmp_dtype_bits(int8_t dtype) {
  return (uint8_t)(8 << dtype);
}

/* Verifies identifier, version, checksum and structure. bytes may be anything, file is aligned. */
nmp_status nmp_model_open(nmp_model *m, const uint8_t *file, size_t bytes, nmp_fault *fault);

/* Verifies meaning: tensors, ports, ops, plan. Afterwards nothing that is decoded needs a check. What is needed depends
 * on the kernels and the threads.
 */
nmp_status nmp_model_check(const nmp_model *m, nmp_needs *needs, nmp_fault *fault);

/* core/plan_check.c: every read finds what was produced; everything lies inside the arena. */
nmp_status nmp_plan_check(const nmp_model *m, nmp_needs *needs, nmp_fault *fault);

/* states.c: the ports say which inputs are states; the plan is plan_check's. */
nmp_rule nmp_state_check(const nmp_model *m, uint32_t input);
void nmp_states_begin(const nmp_model *m);
void nmp_states_advance(const nmp_model *m);

/* core/sounds.c: what of an input's front end of sound is illegal. */
nmp_rule nmp_sound_check(const nmp_model *m, uint32_t input, nmp_needs *needs);

/* nmp.c, for programs that make the input's integers themselves. */
const nmp_model *nmp_model_of(const nmp_net *net);

/* Copies the states, one after another, to `to` or from `from`, whichever is not NULL. Returns their bytes. */
size_t nmp_states_copy(const nmp_model *m, uint8_t *to, const uint8_t *from);

/* decode.c */
void nmp_model_tensor(const nmp_model *m, uint32_t i, nmp_tensor *t);
void nmp_model_op(const nmp_model *m, uint32_t i, nmp_op *op);

uint32_t nmp_model_output_of(const nmp_model *m, uint32_t op);

/* End in the arena of the activations that are alive while an op runs. */
uint32_t nmp_model_live_end(const nmp_model *m, uint32_t op);

/* The address of an offset in the arena; NULL before create. */
uint8_t *nmp_model_at(const nmp_model *m, uint32_t offset);

/* Start of the slow memory that is free while an op runs, as an offset in the arena. */
uint32_t nmp_model_slow_end(const nmp_model *m, uint32_t op);

/* Place of so many bytes of scratch of an op: in the fast memory where the plan has room for them. */
uint32_t nmp_model_scratch_at(const nmp_model *m, uint32_t op, size_t bytes);
uint32_t nmp_model_port(fb_vector ports, uint32_t i);

/* The output that input i takes over, or -1. */
int32_t nmp_model_state(const nmp_model *m, uint32_t i);

/* fault.c
 * Takes steps from the budget, which is a multiple of the file's size; returns 0 when it is spent. */
int nmp_spend(nmp_needs *needs, uint64_t steps);
nmp_status nmp_fail(nmp_fault *fault, int64_t op, int64_t tensor, nmp_rule rule);
void nmp_clear(nmp_info *info); /* field by field: many programs on boards have no other use for memset */

/* op_table.c: by kind, no longer than the last one of this build; NULL for an op that it leaves out. */
#define NMP_OP_PLACE(name, NAME) [NMP_OP_##NAME] = 0,
#define NMP_OP_TABLE sizeof((const char[]){NMP_BUILD_OPS(NMP_OP_PLACE)})
extern const nmp_op_type *const nmp_op_table[NMP_OP_TABLE];
extern nmp_decode_fn *const nmp_op_decode[NMP_OP_TABLE];

#endif
