/* nmpconv interpreter: runs a .nmp file with integers only.
 *
 * No allocation, no I/O, no globals, no float. The caller keeps the file (const, may stay in flash) and one
 * arena, both 16-byte aligned, both alive as long as the handle, which lies at the start of the arena.
 */
#ifndef NMP_H
#define NMP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NMP_VERSION "0.2.0"
#define NMP_RANK_MAX 6
#define NMP_THREADS_MAX 256

/* Pinned by theme: 0 fine, 1..19 the file, 20..39 the caller, 40..59 this build. */
typedef enum nmp_status {
  NMP_OK = 0,
  NMP_E_NOT_NMP = 1,     /* no NMP1 identifier, or too short */
  NMP_E_VERSION = 2,     /* major version of the file is not this one's */
  NMP_E_CHECKSUM = 3,    /* CRC-32 differs: damaged or truncated */
  NMP_E_STRUCTURE = 4,   /* an offset, a length or an alignment is out of bounds */
  NMP_E_TENSOR = 5,      /* a tensor's shape, type, exponents or clip range is illegal */
  NMP_E_OP = 6,          /* an op's inputs, parameters or shifts are illegal */
  NMP_E_PLAN = 7,        /* the memory plan overlaps or leaves the arena */
  NMP_E_ORDER = 8,       /* a tensor is read before it is produced */
  NMP_E_LIMIT = 9,       /* too many elements or too much work */
  NMP_E_ARGUMENT = 20,   /* a null or misaligned pointer, or a number out of range */
  NMP_E_ARENA = 21,      /* the arena is smaller than nmp_info.arena_bytes */
  NMP_E_UNKNOWN_OP = 40, /* an op that this version does not know */
  NMP_E_NOT_BUILT = 41,  /* an op, a width or a kind of op that this build left out */
  NMP_E_CPU = 42,        /* a CPU level that this machine or build does not have */
  NMP_E_CUSTOM = 43      /* a custom op that this program has no function for: nmp_fault.what is its name */
} nmp_status;

/* Part of the file that a status is about: indices, -1 for none, and up to two numbers (found, allowed). */
typedef struct nmp_fault {
  nmp_status status;
  int32_t op;
  int32_t tensor;
  int64_t found;
  int64_t allowed;
  const char *what; /* names the field or rule, lies in the file at most; NULL without NMP_FAULT_DETAILS (build.h) */
} nmp_fault;

typedef struct nmp_info {
  uint16_t major, minor;
  uint32_t inputs, outputs, ops, tensors;
  size_t arena_bytes; /* what nmp_create needs: handle + packed weights + activations + what scratch does not fit among
                         them */
  size_t packed_bytes, activation_bytes; /* of that */
  size_t scratch_bytes; /* of the hungriest op; it lies where no activation is alive, as far as there is room */
  uint64_t work;        /* bound of the steps (about a multiply-accumulate each) of one run */
  size_t fast_bytes;    /* of arena_bytes, what nmp_create_split wants in a fast memory; 0: the model has one memory */
} nmp_info;

/* A tensor as the caller sees it: real value = integer * 2^exponent + origin. bits are 8, 16 or 32. With axis >= 0 each
 * index of that axis has its exponent: of constants, of outputs that join parts of different ranges, and of inputs
 * whose channels have different units. With offsets, real value = integer * 2^exponent + offset; with mantissas, the
 * step is mantissa * 2^exponent.
 */
typedef struct nmp_view {
  const char *name; /* in the file */
  void *data;       /* constants are in the file: not to be written */
  size_t bytes;
  int32_t shape[NMP_RANK_MAX];
  uint8_t rank;
  uint8_t bits;
  int8_t exponent; /* exponents[0] */
  uint8_t method;  /* how the exponent was chosen: enum Method of the schema */
  int32_t clip_min, clip_max;
  uint32_t observed_min, observed_max; /* range seen in calibration, as the bits of IEEE 754 float32 */
  uint32_t origin;                     /* what 0 stands for in the float model, as such bits; no kernel reads it */
  const int8_t *exponents;             /* in the file */
  uint32_t exponent_count;
  int8_t axis;              /* -1: one exponent */
  const uint8_t *offsets;   /* in the file: little-endian float32, one for each of exponents; NULL: there is none */
  const uint8_t *mantissas; /* likewise, in [1, 2); NULL: all are 1 */
} nmp_view;

/* Runs task(ctx, i, worker) for i in [0, n), in any order, on any threads; returns when all are done. worker tells
 * tasks apart that run at the same time: it is below nmp_options.threads. Faster where a thread takes the same part of
 * [0, n) in each call.
 */
typedef void (*nmp_task)(void *ctx, size_t i, size_t worker);
typedef void (*nmp_parallel_for)(void *pool, nmp_task task, void *ctx, size_t n);

struct nmp_custom_op;

/* A build that keeps no steps, such as one for a microcontroller, has one thread and looks at cpu and custom alone. */
typedef struct nmp_options {
  const char *cpu;           /* NULL: the best level; else "portable", "avx2", ... */
  nmp_parallel_for parallel; /* NULL: one thread */
  void *pool;
  size_t threads; /* how many tasks run at the same time at most, up to NMP_THREADS_MAX; 0 or 1: one */
  const struct nmp_custom_op *custom; /* the program's own ops, up to a row without a name (nmp_custom.h); NULL: none */
} nmp_options;

typedef struct nmp_net nmp_net;

/* Verifies the whole file and tells what it needs with these options, those of nmp_create. options and fault may be
 * NULL. NMP_E_ARGUMENT: also more threads than NMP_THREADS_MAX.
 */
nmp_status nmp_inspect(const void *model, size_t bytes, const nmp_options *options, nmp_info *info, nmp_fault *fault);

/* Verifies the file and builds a handle inside the arena; nothing to free. options and fault may be NULL. */
nmp_status nmp_create(nmp_net **net, const void *model, size_t bytes, void *arena, size_t arena_bytes,
                      const nmp_options *options, nmp_fault *fault);

/* The same with the fast part of the arena, nmp_info.fast_bytes, in a memory of its own, aligned as the arena, which
 * then needs as many bytes less. Both stay as long as the net. For a model with one memory fast may be NULL. Left out
 * of a build without NMP_TWO_MEMORIES.
 */
nmp_status nmp_create_split(nmp_net **net, const void *model, size_t bytes, void *fast, size_t fast_bytes, void *arena,
                            size_t arena_bytes, const nmp_options *options, nmp_fault *fault);

/* A second net over the same file and packed weights: threads that each have one run side by side. It has an arena of
 * its own of nmp_info.arena_bytes - packed_bytes, a pool of its own, the options of `net`, and its states at their
 * start. `net`, which may run meanwhile, and its arena have to stay as long as the copy. Left out of a build that keeps
 * no steps, whose nets have no packed weights: nmp_create is the same there.
 */
nmp_status nmp_copy(nmp_net **copy, const nmp_net *net, void *arena, size_t arena_bytes, void *pool);

/* Nets that take turns in one arena, as large as the largest of them needs: nmp_suspend copies what a net has to keep
 * while another one uses the arena (its handle and its states) to memory of the caller; nmp_resume puts it back without
 * verifying the file again. Other inputs are to be written after it. A net without states needs one nmp_suspend, after
 * nmp_create. Between the two calls no other function may be called with the net. NMP_E_ARGUMENT: a null pointer, less
 * memory than nmp_suspended_bytes, or another arena than that of nmp_create.
 */
size_t nmp_suspended_bytes(const nmp_net *net);
nmp_status nmp_suspend(const nmp_net *net, void *memory, size_t bytes);
nmp_status nmp_resume(nmp_net **net, void *arena, const void *memory, size_t bytes);

/* Facts about an op on another machine. */
typedef struct nmp_op_info {
  uint32_t scratch_bytes;
  uint8_t portable; /* 1: a convolution that the machine's own kernels leave to the portable ones */
} nmp_op_info;

/* Tells what nmp_inspect would on another machine, in a build for its CPU (NMP_FIXED_CPU) that keeps no steps. ops:
 * room for `count` ops; those that there are get filled. target: a name of nmp_target, which returns NULL after the
 * last. Custom ops are not looked for. NMP_E_CPU: there is none of this name. Both are left out of a build with
 * NMP_FIXED_CPU.
 */
nmp_status nmp_inspect_target(const char *target, const void *model, size_t bytes, nmp_info *info, nmp_op_info *ops,
                              size_t count, nmp_fault *fault);
const char *nmp_target(size_t i);

/* The memory of input or output i, to be written before and read after a run. Inputs may be overwritten by a run. */
nmp_status nmp_input(nmp_net *net, uint32_t i, nmp_view *view);
nmp_status nmp_output(nmp_net *net, uint32_t i, nmp_view *view);

/* Runs all ops. There is no error that depends on data. */
nmp_status nmp_run(nmp_net *net);

/* A state is an input that takes over the integers of an output once the last op has run: what a call knows of those
 * before it. nmp_create and nmp_reset set all states to their start. A caller need not write them, and may.
 */
nmp_status nmp_reset(nmp_net *net);

/* The output that input i takes over; -1: none, the caller writes it before each run. */
int32_t nmp_state_of(const nmp_net *net, uint32_t i);

/* Runs ops [first, last); what they wrote can be read with nmp_tensor_at until something overwrites it. Of ops that are
 * run together only the last one writes to the tensors.
 */
nmp_status nmp_run_ops(nmp_net *net, uint32_t first, uint32_t last);

/* Number of ops, from this one on, that are run together when all of them are to be run; 1: it is run by itself. It
 * depends on nmp_set_threads.
 */
uint32_t nmp_together(const nmp_net *net, uint32_t op);

/* From now on an op, with those that are run together from it on, is cut into tasks for so many threads at most: 1 to
 * nmp_options.threads, which it is at first. Those that only threads run together are run one after the other with 1.
 * No result depends on it: a caller with a clock can see what other threads bring on its machine. NMP_E_ARGUMENT: there
 * is no such op, or there are not so many threads.
 */
nmp_status nmp_set_threads(nmp_net *net, uint32_t op, size_t threads);
nmp_status nmp_tensor_at(nmp_net *net, uint32_t tensor, nmp_view *view);

/* The CPU level in use, for example "portable"; level i of those that this build has and this machine can run, the
 * plainest first, and NULL after the last.
 */
const char *nmp_cpu(const nmp_net *net);
const char *nmp_cpu_level(size_t i);

const char *nmp_status_text(nmp_status status);
const char *nmp_version(void);

#ifdef __cplusplus
}
#endif

#endif
