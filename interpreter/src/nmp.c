#include "nmp.h"

#include <string.h>

#include "core/model.h"
#include "dispatch.h"
#include "gen/nmp_schema.h"

#if NMP_PREPARED
#include "core/fuse/fuse.h"
#endif

/* The arena: this handle, the decoded ops, packed weights (where each op's begin, then they), the activations. An op's
 * scratch lies behind those that are alive while it runs.
 */
struct nmp_net {
  nmp_model model;
  const nmp_op *ops;        /* with NMP_KEEP_OPS */
  struct nmp_chain *chains; /* with NMP_PREPARED: those that begin with each op */
  uint8_t *packed;          /* NULL: the CPU reads weights as they are in the file */
  const uint32_t *starts;   /* of each op's weights in packed */
  const char *cpu;
#if !NMP_FIXED_CPU
  nmp_kernels kernels;
#endif
  nmp_options options;
};

#if NMP_FIXED_CPU
#define KERNELS(net) NULL
#else
#define KERNELS(net) (&(net)->kernels)
#endif

/* To cache lines where there is a cache. */
#define UNIT(address) ((address) > 4 ? 64u : NMP_ALIGN)

static uint64_t align(uint64_t bytes) {
  const uint64_t unit = UNIT(sizeof(void *));
  return (bytes + unit - 1) / unit * unit;
}

/* Bytes of the handle by those of an address, in a build with NMP_FIXED_CPU that keeps no ops. */
#define HANDLE(address) ((address) > 4 ? 192u : 96u)
#if NMP_FIXED_CPU && !NMP_KEEP_OPS
typedef char
    handle_is_known[(sizeof(nmp_net) + UNIT(sizeof(void *)) - 1) / UNIT(sizeof(void *)) * UNIT(sizeof(void *)) ==
                            HANDLE(sizeof(void *))
                        ? 1
                        : -1];
#endif

static int misaligned(const void *p) {
  return p == NULL || (uintptr_t)p % NMP_ALIGN != 0;
}

static nmp_status refuse(nmp_fault *fault, nmp_rule rule) {
  return nmp_fail(fault, -1, -1, rule);
}

#if NMP_PREPARED
static uint64_t chain_bytes(const nmp_model *m) {
  return align(m->ops.count * sizeof(nmp_chain));
}

/* What chains need besides; their places where `chains` is not NULL. */
static void find_chains(const nmp_net *net, nmp_needs *needs, nmp_chain *chains) {
  const nmp_model *m = &net->model;
  uint64_t budget = nmp_chain_budget(m);
  for (uint32_t i = 0; i < m->ops.count;) {
    const nmp_chain chain = nmp_chain_at(m, KERNELS(net), &net->options, i, &budget);
    const uint32_t count = chain.count < 2 ? 1 : chain.count;
    if (chains) {
      memset(&chains[i], 0, count * sizeof(chain));
      chains[i] = chain;
    } else if (count > 1) {
      const size_t bytes = chain.scratch + chain.copy, end = chain.at + bytes;
      needs->scratch = bytes > needs->scratch ? (uint32_t)bytes : needs->scratch;
      needs->arena = end > needs->arena ? (uint32_t)end : needs->arena;
    }
    i += count;
  }
}

/* Runs the ops that are run together with op i, if they end before `last`; returns how many. */
static uint32_t run_chain(nmp_net *net, uint32_t i, uint32_t last) {
  const uint32_t n = nmp_together(net, i);
  if (n == 1 || n > last - i) {
    return 0;
  }
  nmp_chain_run(&net->chains[i], &net->ops[i], net->model.arena);
  return n;
}
#else
static uint64_t chain_bytes(const nmp_model *m) {
  (void)m;
  return 0;
}

static uint32_t run_chain(nmp_net *net, uint32_t i, uint32_t last) {
  (void)net;
  (void)i;
  (void)last;
  return 0;
}
#endif

/* The offset of what comes after each part of the arena. */
typedef struct layout {
  uint64_t ops, chains, packed, activations, end;
} layout;

static layout lay_out(const nmp_model *m, const nmp_needs *needs) {
  layout at;
  at.ops = align(sizeof(nmp_net));
  at.chains = at.ops + (NMP_KEEP_OPS ? align(m->ops.count * sizeof(nmp_op)) : 0);
  at.packed = at.chains + chain_bytes(m);
  at.activations = at.packed + (needs->packed ? align(m->ops.count * sizeof(uint32_t)) + needs->packed : 0);
  at.end = at.activations + needs->arena;
  return at;
}

/* Opens and checks the file with the net's kernels and options. */
static nmp_status check_file(nmp_net *net, const void *file, size_t bytes, nmp_needs *needs, nmp_fault *fault) {
  if (misaligned(file)) {
    return refuse(
        fault, NMP_RULE(NMP_E_ARGUMENT, "alignment of the model", (int64_t)((uintptr_t)file % NMP_ALIGN), NMP_ALIGN));
  }
  nmp_model *m = &net->model;
  const nmp_status status = nmp_model_open(m, KERNELS(net), (const uint8_t *)file, bytes, fault);
  return status == NMP_OK ? nmp_model_check(m, KERNELS(net), &net->options, needs, fault) : status;
}

/* All but what the arena needs besides activations, which depends on the machine. */
static void tell(const nmp_model *m, const nmp_needs *needs, nmp_info *info) {
  info->major = fb_model_major(m->root);
  info->minor = fb_model_minor(m->root);
  info->inputs = m->inputs.count;
  info->outputs = m->outputs.count;
  info->ops = m->ops.count;
  info->tensors = m->tensors.count;
  info->activation_bytes = m->arena_bytes;
  info->scratch_bytes = needs->scratch;
  info->work = needs->work;
}

/* Fills net but for what lies in the arena, and the layout. */
static nmp_status verify(nmp_net *net, const void *file, size_t bytes, const nmp_options *options, nmp_info *info,
                         layout *at, nmp_fault *fault) {
  static const nmp_options defaults = {NULL, NULL, NULL, 0};
  const nmp_model *m = &net->model;
  nmp_needs needs;
  *info = (nmp_info){0};
  *at = (layout){0, 0, 0, 0, 0};
  net->options = options ? *options : defaults;
  net->cpu = net->options.cpu = nmp_cpu_select(net->options.cpu, KERNELS(net));
  if (net->cpu == NULL) {
    return refuse(fault, NMP_RULE(NMP_E_CPU, "CPU level", 0, 0));
  }
  const nmp_status status = check_file(net, file, bytes, &needs, fault);
  if (status != NMP_OK) {
    return status;
  }
#if NMP_PREPARED
  find_chains(net, &needs, NULL);
#endif
  *at = lay_out(m, &needs);
  if (at->end > SIZE_MAX) {
    return refuse(fault, NMP_RULE(NMP_E_LIMIT, "bytes of the arena", (int64_t)at->end, (int64_t)(SIZE_MAX >> 1)));
  }
  tell(m, &needs, info);
  info->arena_bytes = (size_t)at->end;
  info->packed_bytes = (size_t)(at->activations - at->packed);
  return refuse(fault, NMP_RULE(NMP_OK, NULL, 0, 0));
}

nmp_status nmp_inspect(const void *model, size_t bytes, const nmp_options *options, nmp_info *info, nmp_fault *fault) {
  nmp_net net;
  layout at;
  nmp_fault unwanted;
  fault = fault ? fault : &unwanted;
  if (info == NULL) {
    return refuse(fault, NMP_RULE(NMP_E_ARGUMENT, "info", 0, 0));
  }
  return verify(&net, model, bytes, options, info, &at, fault);
}

#if !NMP_FIXED_CPU
/* Bytes of scratch of the first `count` ops. */
static void scratch_of_ops(const nmp_net *net, uint32_t *scratch, size_t count) {
  for (uint32_t i = 0; i < count && i < net->model.ops.count; i++) {
    nmp_op op = {.kernels = KERNELS(net), .threads = &net->options};
    nmp_model_op(&net->model, i, &op);
    scratch[i] = nmp_op_table[op.kind]->scratch ? (uint32_t)nmp_op_table[op.kind]->scratch(&op) : 0;
  }
}

nmp_status nmp_inspect_target(const char *target, const void *model, size_t bytes, nmp_info *info, uint32_t *scratch,
                              size_t ops, nmp_fault *fault) {
  nmp_net net = {.options = {NULL, NULL, NULL, 0}};
  nmp_needs needs;
  nmp_fault unwanted;
  fault = fault ? fault : &unwanted;
  if (info == NULL || target == NULL || (ops > 0 && scratch == NULL)) {
    return refuse(fault, NMP_RULE(NMP_E_ARGUMENT, "info, target or scratch", 0, 0));
  }
  *info = (nmp_info){0};
  if (!nmp_target_select(target, KERNELS(&net))) {
    return refuse(fault, NMP_RULE(NMP_E_CPU, "target", 0, 0));
  }
  const nmp_status status = check_file(&net, model, bytes, &needs, fault);
  if (status != NMP_OK) {
    return status;
  }
  tell(&net.model, &needs, info);
  info->arena_bytes = HANDLE(net.kernels.address) + (size_t)needs.arena;
  scratch_of_ops(&net, scratch, ops);
  return refuse(fault, NMP_RULE(NMP_OK, NULL, 0, 0));
}
#endif

/* The op, with everything that a run needs. */
static void decode(const nmp_net *net, uint32_t i, nmp_op *op) {
  nmp_model_op(&net->model, i, op);
  op->packed = NMP_PACKED_WEIGHTS && net->packed ? net->packed + net->starts[i] : NULL;
  op->scratch = net->model.arena + nmp_model_live_end(&net->model, i);
  op->kernels = KERNELS(net);
  op->threads = &net->options;
}

static void pack(nmp_net *net, uint8_t *area) {
  uint32_t *starts = (uint32_t *)(void *)area, start = 0;
  nmp_op op;
  net->starts = starts;
  net->packed = area + align(net->model.ops.count * sizeof(uint32_t));
  for (uint32_t i = 0; i < net->model.ops.count; i++) {
    starts[i] = start;
    decode(net, i, &op);
    const uint32_t bytes = (uint32_t)nmp_model_packed(&op);
    if (bytes > 0) {
      nmp_op_table[op.kind]->pack(&op, net->packed + start);
    }
    start += bytes;
  }
}

static void keep_ops(nmp_net *net, nmp_op *ops) {
  for (uint32_t i = 0; i < net->model.ops.count; i++) {
    decode(net, i, &ops[i]);
  }
  net->ops = ops;
}

nmp_status nmp_create(nmp_net **net, const void *model, size_t bytes, void *arena, size_t arena_bytes,
                      const nmp_options *options, nmp_fault *fault) {
  nmp_net made;
  nmp_info info;
  layout at;
  nmp_fault unwanted;
  fault = fault ? fault : &unwanted;
  if (net == NULL || misaligned(arena)) {
    return refuse(
        fault, NMP_RULE(NMP_E_ARGUMENT, "alignment of the arena", (int64_t)((uintptr_t)arena % NMP_ALIGN), NMP_ALIGN));
  }
  nmp_status status = verify(&made, model, bytes, options, &info, &at, fault);
  if (status != NMP_OK) {
    return status;
  }
  if (arena_bytes < info.arena_bytes) {
    return refuse(fault, NMP_RULE(NMP_E_ARENA, "bytes of the arena", (int64_t)arena_bytes, (int64_t)info.arena_bytes));
  }
  uint8_t *base = (uint8_t *)arena;
  made.model.arena = base + at.activations;
  made.packed = NULL;
  made.starts = NULL;
  made.ops = NULL;
  made.chains = NULL;
  *net = (nmp_net *)arena;
  **net = made;
  if (NMP_PACKED_WEIGHTS && at.activations > at.packed) {
    pack(*net, base + at.packed);
  }
  if (NMP_KEEP_OPS) {
    keep_ops(*net, (nmp_op *)(void *)(base + at.ops));
  }
#if NMP_PREPARED
  (*net)->chains = (nmp_chain *)(void *)(base + at.chains);
  find_chains(*net, NULL, (*net)->chains);
#endif
  return NMP_OK;
}

nmp_status nmp_tensor_at(nmp_net *net, uint32_t tensor, nmp_view *view) {
  nmp_tensor t;
  if (net == NULL || view == NULL || tensor >= net->model.tensors.count) {
    return NMP_E_ARGUMENT;
  }
  const uint8_t *table = fb_element(net->model.tensors, tensor);
  nmp_model_tensor(&net->model, tensor, &t);
  view->name = fb_tensor_name(table);
  view->data = t.data;
  view->bytes = t.size * (size_t)(t.bits / 8);
  for (uint32_t i = 0; i < NMP_RANK_MAX; i++) {
    view->shape[i] = i < t.rank ? t.shape[i] : 1;
  }
  view->rank = t.rank;
  view->bits = t.bits;
  view->exponent = t.exponent;
  view->method = (uint8_t)fb_tensor_method(table);
  view->clip_min = t.lo;
  view->clip_max = t.hi;
  view->observed_min = fb_tensor_observed_min(table);
  view->observed_max = fb_tensor_observed_max(table);
  return NMP_OK;
}

static nmp_status port_view(nmp_net *net, fb_vector ports, uint32_t i, nmp_view *view) {
  return i < ports.count ? nmp_tensor_at(net, nmp_model_port(ports, i), view) : NMP_E_ARGUMENT;
}

nmp_status nmp_input(nmp_net *net, uint32_t i, nmp_view *view) {
  return net ? port_view(net, net->model.inputs, i, view) : NMP_E_ARGUMENT;
}

nmp_status nmp_output(nmp_net *net, uint32_t i, nmp_view *view) {
  return net ? port_view(net, net->model.outputs, i, view) : NMP_E_ARGUMENT;
}

nmp_status nmp_run(nmp_net *net) {
  return net ? nmp_run_ops(net, 0, net->model.ops.count) : NMP_E_ARGUMENT;
}

nmp_status nmp_run_ops(nmp_net *net, uint32_t first, uint32_t last) {
  if (net == NULL || first > last || last > net->model.ops.count) {
    return NMP_E_ARGUMENT;
  }
  for (uint32_t i = first, n; i < last; i += n) {
    n = run_chain(net, i, last);
    if (n > 0) {
      continue;
    }
    n = 1;
    nmp_op decoded;
    const nmp_op *op = NMP_KEEP_OPS ? &net->ops[i] : &decoded;
    if (!NMP_KEEP_OPS) {
      decode(net, i, &decoded);
    }
    nmp_op_table[op->kind]->run(op);
  }
  return NMP_OK;
}

uint32_t nmp_together(const nmp_net *net, uint32_t op) {
#if NMP_PREPARED
  if (net && op < net->model.ops.count && net->chains[op].count > 1) {
    return net->chains[op].count;
  }
#endif
  (void)net;
  (void)op;
  return 1;
}

const char *nmp_cpu(const nmp_net *net) {
  return net ? net->cpu : NULL;
}

const char *nmp_version(void) {
  return NMP_VERSION;
}

const char *nmp_status_text(nmp_status status) {
  switch (status) {
    case NMP_OK:
      return "fine";
    case NMP_E_NOT_NMP:
      return "not a .nmp file";
    case NMP_E_VERSION:
      return "a format version that this interpreter does not read";
    case NMP_E_CHECKSUM:
      return "the checksum differs: the file is damaged or truncated";
    case NMP_E_STRUCTURE:
      return "an offset, a length or an alignment is out of bounds";
    case NMP_E_TENSOR:
      return "a tensor is illegal";
    case NMP_E_OP:
      return "an op is illegal";
    case NMP_E_PLAN:
      return "the memory plan is illegal";
    case NMP_E_ORDER:
      return "a tensor is read before it is produced";
    case NMP_E_LIMIT:
      return "too many elements or too much work";
    case NMP_E_ARGUMENT:
      return "a null or misaligned pointer, or an index out of range";
    case NMP_E_ARENA:
      return "the arena is too small";
    case NMP_E_UNKNOWN_OP:
      return "an op that this version does not know";
    case NMP_E_NOT_BUILT:
      return "an op, a width or a kind of op that this build left out";
    case NMP_E_CPU:
      return "a CPU level that this machine or build does not have";
  }
  return "an unknown status";
}
