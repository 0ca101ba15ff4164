#include "nmp.h"

#include <string.h>

#include "core/steps.h"
#include "dispatch.h"
#include "gen/nmp_schema.h"

#if NMP_KEEP_STEPS
#include "core/fuse/fuse.h"
#endif

/* The arena: this handle, with NMP_KEEP_STEPS the steps and packed weights, the activations. An op's scratch lies
 * behind those that are alive while it runs.
 */
struct nmp_net {
  nmp_model model;
#if NMP_KEEP_STEPS
  nmp_step *steps;
  uint32_t activations; /* bytes of them and of the scratch behind them */
#endif
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
#if NMP_KEEP_STEPS
#define STEPS(net) ((net)->steps)
#else
#define STEPS(net) NULL
#endif

/* To cache lines where there is a cache. */
#define UNIT(address) ((address) > 4 ? 64u : NMP_ALIGN)

static uint64_t net_align(uint64_t bytes) {
  const uint64_t unit = UNIT(sizeof(void *));
  return (bytes + unit - 1) / unit * unit;
}

/* Bytes of the handle by those of an address, in a build with NMP_FIXED_CPU that keeps no steps. */
#define HANDLE(address, two) ((address) > 4 ? 192u : 80u + 16u * (two))
#if NMP_FIXED_CPU && !NMP_KEEP_STEPS
typedef char
    handle_is_known[(sizeof(nmp_net) + UNIT(sizeof(void *)) - 1) / UNIT(sizeof(void *)) * UNIT(sizeof(void *)) ==
                            HANDLE(sizeof(void *), NMP_TWO_MEMORIES)
                        ? 1
                        : -1];
#endif

static int misaligned(const void *p) {
  return p == NULL || (uintptr_t)p % NMP_ALIGN != 0;
}

static nmp_status refuse(nmp_fault *fault, nmp_rule rule) {
  return nmp_fail(fault, -1, -1, rule);
}

/* The offset of what comes after each part of the arena. */
typedef struct layout {
  uint64_t steps, packed, activations, end;
} layout;

static layout lay_out(const nmp_model *m, const nmp_needs *needs) {
  layout at;
  at.steps = net_align(sizeof(nmp_net));
  at.packed = at.steps + (NMP_KEEP_STEPS ? net_align((uint64_t)m->ops.count * sizeof(nmp_step)) : 0);
  at.activations = at.packed + needs->packed;
  at.end = at.activations + needs->arena;
  return at;
}

/* The model finds the kernels and options of its net, wherever that lies. */
static void bind(nmp_net *net) {
  net->model.kernels = KERNELS(net);
  net->model.options = &net->options;
}

/* Opens and checks the file with the net's kernels and options. */
static nmp_status check_file(nmp_net *net, const void *file, size_t bytes, nmp_needs *needs, nmp_fault *fault) {
  if (misaligned(file)) {
    return refuse(
        fault, NMP_RULE(NMP_E_ARGUMENT, "alignment of the model", (int64_t)((uintptr_t)file % NMP_ALIGN), NMP_ALIGN));
  }
  nmp_model *m = &net->model;
  bind(net);
  const nmp_status status = nmp_model_open(m, (const uint8_t *)file, bytes, fault);
  return status == NMP_OK ? nmp_model_check(m, needs, fault) : status;
}

const nmp_model *nmp_model_of(const nmp_net *net) {
  return &net->model;
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
#if NMP_TWO_MEMORIES
  info->fast_bytes = m->fast_bytes;
#endif
}

/* Takes the options over, or the defaults: those that this build looks at. */
static void take(nmp_net *net, const nmp_options *options) {
#if NMP_KEEP_STEPS
  net->options = options ? *options : (nmp_options){.threads = 0};
#else
  net->options.cpu = options ? options->cpu : NULL;
  net->options.parallel = NULL;
#if NMP_CUSTOM
  net->options.custom = options ? options->custom : NULL;
#endif
#endif
}

/* Fills net but for what lies in the arena, and the layout. */
static nmp_status verify(nmp_net *net, const void *file, size_t bytes, const nmp_options *options, nmp_info *info,
                         layout *at, nmp_fault *fault) {
  const nmp_model *m = &net->model;
  nmp_needs needs;
  nmp_clear(info);
  at->steps = at->packed = at->activations = at->end = 0;
  take(net, options);
  if (NMP_KEEP_STEPS && net->options.threads > NMP_THREADS_MAX) {
    const size_t found = net->options.threads < SIZE_MAX >> 1 ? net->options.threads : SIZE_MAX >> 1;
    return refuse(fault, NMP_RULE(NMP_E_ARGUMENT, "threads", (int64_t)found, NMP_THREADS_MAX));
  }
  net->options.cpu = nmp_cpu_select(net->options.cpu, KERNELS(net));
  if (net->options.cpu == NULL) {
    return refuse(fault, NMP_RULE(NMP_E_CPU, "CPU level", 0, 0));
  }
  const nmp_status status = check_file(net, file, bytes, &needs, fault);
  if (status != NMP_OK) {
    return status;
  }
#if NMP_KEEP_STEPS
  nmp_fuse(m, &needs, NULL);
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
/* The first `count` ops. */
static void tell_ops(const nmp_net *net, nmp_op_info *ops, size_t count) {
  for (uint32_t i = 0; i < count && i < net->model.ops.count; i++) {
    nmp_op op;
    nmp_model_op(&net->model, i, &op);
    ops[i].scratch_bytes = op.type->scratch ? (uint32_t)op.type->scratch(&op) : 0;
    ops[i].portable = (uint8_t)nmp_op_is_portable(&op);
  }
}

nmp_status nmp_inspect_target(const char *target, const void *model, size_t bytes, nmp_info *info, nmp_op_info *ops,
                              size_t count, nmp_fault *fault) {
  nmp_net net = {.options = {.threads = 1, .custom = nmp_custom_any}};
  nmp_needs needs;
  nmp_fault unwanted;
  fault = fault ? fault : &unwanted;
  if (info == NULL || target == NULL || (count > 0 && ops == NULL)) {
    return refuse(fault, NMP_RULE(NMP_E_ARGUMENT, "info, target or ops", 0, 0));
  }
  nmp_clear(info);
  if (!nmp_target_select(target, KERNELS(&net))) {
    return refuse(fault, NMP_RULE(NMP_E_CPU, "target", 0, 0));
  }
  const nmp_status status = check_file(&net, model, bytes, &needs, fault);
  if (status != NMP_OK) {
    return status;
  }
  tell(&net.model, &needs, info);
  info->arena_bytes = HANDLE(net.kernels.address, net.model.fast_bytes > 0) + (size_t)needs.arena;
  tell_ops(&net, ops, count);
  return refuse(fault, NMP_RULE(NMP_OK, NULL, 0, 0));
}
#endif

/* Puts a net at the start of its arena, its activations at `base`; those of a fast memory to `fast`, or, where that is
 * NULL, before the others. */
static nmp_net *place(const nmp_net *made, void *arena, uint8_t *base, uint8_t *fast) {
  nmp_net *net = (nmp_net *)arena;
  *net = *made;
#if NMP_TWO_MEMORIES
  net->model.fast = fast ? fast : base;
  net->model.arena = fast ? base : base + made->model.fast_bytes;
#else
  (void)fast;
  net->model.arena = base;
#endif
  bind(net);
  return net;
}

#if NMP_KEEP_STEPS
/* Makes the steps of a net in its arena; see nmp_steps_make. */
static void make_steps(nmp_net *net, uint8_t *packed, const nmp_step *shared) {
  net->steps = (nmp_step *)(void *)((uint8_t *)net + net_align(sizeof(nmp_net)));
  nmp_steps_make(&net->model, net->steps, packed, shared);
  nmp_fuse(&net->model, NULL, net->steps);
}

nmp_status nmp_copy(nmp_net **copy, const nmp_net *net, void *arena, size_t arena_bytes, void *pool) {
  if (copy == NULL || net == NULL || misaligned(arena)) {
    return NMP_E_ARGUMENT;
  }
  const nmp_needs needs = {.arena = net->activations};
  const layout at = lay_out(&net->model, &needs);
  if (arena_bytes < at.end) {
    return NMP_E_ARENA;
  }
  *copy = place(net, arena, (uint8_t *)arena + at.activations, NULL);
  (*copy)->options.pool = pool;
  make_steps(*copy, NULL, net->steps);
  return nmp_reset(*copy);
}
#endif

/* fast: NULL for one memory. */
static nmp_status create(nmp_net **net, const void *model, size_t bytes, uint8_t *fast, size_t fast_bytes, void *arena,
                         size_t arena_bytes, const nmp_options *options, nmp_fault *fault) {
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
  const size_t apart = fast ? info.fast_bytes : 0;
  if (fast_bytes < apart) {
    return refuse(fault, NMP_RULE(NMP_E_ARENA, "bytes of the fast memory", (int64_t)fast_bytes, (int64_t)apart));
  }
  if (arena_bytes < info.arena_bytes - apart) {
    return refuse(
        fault, NMP_RULE(NMP_E_ARENA, "bytes of the arena", (int64_t)arena_bytes, (int64_t)(info.arena_bytes - apart)));
  }
  *net = place(&made, arena, (uint8_t *)arena + at.activations, fast);
#if NMP_KEEP_STEPS
  (*net)->activations = (uint32_t)(at.end - at.activations);
  make_steps(*net, (uint8_t *)arena + at.packed, NULL);
#endif
  return nmp_reset(*net);
}

nmp_status nmp_create(nmp_net **net, const void *model, size_t bytes, void *arena, size_t arena_bytes,
                      const nmp_options *options, nmp_fault *fault) {
  return create(net, model, bytes, NULL, 0, arena, arena_bytes, options, fault);
}

#if NMP_TWO_MEMORIES
nmp_status nmp_create_split(nmp_net **net, const void *model, size_t bytes, void *fast, size_t fast_bytes, void *arena,
                            size_t arena_bytes, const nmp_options *options, nmp_fault *fault) {
  if (fast != NULL && misaligned(fast)) {
    nmp_fault unwanted;
    return refuse(fault ? fault : &unwanted, NMP_RULE(NMP_E_ARGUMENT, "alignment of the fast memory",
                                                      (int64_t)((uintptr_t)fast % NMP_ALIGN), NMP_ALIGN));
  }
  return create(net, model, bytes, (uint8_t *)fast, fast_bytes, arena, arena_bytes, options, fault);
}
#endif

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
  view->clip_min = fb_tensor_clip_min(table);
  view->clip_max = fb_tensor_clip_max(table);
  view->observed_min = fb_tensor_observed_min(table);
  view->observed_max = fb_tensor_observed_max(table);
  view->origin = fb_tensor_origin(table);
  view->exponents = t.exponents;
  view->exponent_count = t.exponent_count;
  view->axis = t.axis;
  const fb_vector floats = fb_tensor_float_exponents(table);
  if (floats.data != NULL) {
    view->exponent = (int8_t)floats.data[0];
    view->exponents = (const int8_t *)floats.data;
    view->exponent_count = floats.count;
    view->axis = fb_tensor_float_axis(table);
  }
  view->offsets = fb_tensor_float_offsets(table).data;
  view->mantissas = fb_tensor_float_mantissas(table).data;
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
  nmp_steps_run(&net->model, STEPS(net), first, last);
  if (first < last && last == net->model.ops.count) {
    nmp_states_advance(&net->model);
  }
  return NMP_OK;
}

nmp_status nmp_reset(nmp_net *net) {
  if (net == NULL) {
    return NMP_E_ARGUMENT;
  }
  nmp_states_begin(&net->model);
  return NMP_OK;
}

/* Bytes of the arena before the activations of a net that lies, or lay, at this address. */
static size_t before(const nmp_model *m, const void *net) {
#if NMP_TWO_MEMORIES
  if (m->fast + m->fast_bytes == m->arena) { /* in one arena */
    return (size_t)(m->fast - (const uint8_t *)net);
  }
#endif
  return (size_t)(m->arena - (const uint8_t *)net);
}

static size_t before_activations(const nmp_net *net) {
  return before(&net->model, net);
}

size_t nmp_suspended_bytes(const nmp_net *net) {
  return net ? before_activations(net) + nmp_states_copy(&net->model, NULL, NULL) : 0;
}

nmp_status nmp_suspend(const nmp_net *net, void *memory, size_t bytes) {
  if (net == NULL || memory == NULL || bytes < nmp_suspended_bytes(net)) {
    return NMP_E_ARGUMENT;
  }
  memcpy(memory, net, before_activations(net));
  nmp_states_copy(&net->model, (uint8_t *)memory + before_activations(net), NULL);
  return NMP_OK;
}

nmp_status nmp_resume(nmp_net **net, void *arena, const void *memory, size_t bytes) {
  nmp_net saved;
  if (net == NULL || misaligned(arena) || memory == NULL || bytes < sizeof(saved)) {
    return NMP_E_ARGUMENT;
  }
  memcpy(&saved, memory, sizeof(saved));
  if (saved.model.options != &((nmp_net *)arena)->options) {
    return NMP_E_ARGUMENT;
  }
  const size_t first = before(&saved.model, arena);
  if (bytes < first + nmp_states_copy(&saved.model, NULL, NULL)) {
    return NMP_E_ARGUMENT;
  }
  memcpy(arena, memory, first);
  *net = (nmp_net *)arena;
  nmp_states_copy(&(*net)->model, NULL, (const uint8_t *)memory + first);
  return NMP_OK;
}

int32_t nmp_state_of(const nmp_net *net, uint32_t i) {
  return net && i < net->model.inputs.count ? nmp_model_state(&net->model, i) : -1;
}

uint32_t nmp_together(const nmp_net *net, uint32_t op) {
#if NMP_KEEP_STEPS
  if (net && op < net->model.ops.count) {
    return nmp_step_ops(&net->steps[op]);
  }
#endif
  (void)net;
  (void)op;
  return 1;
}

nmp_status nmp_set_threads(nmp_net *net, uint32_t op, size_t threads) {
  if (net == NULL || op >= net->model.ops.count || threads < 1 || (!NMP_KEEP_STEPS && threads > 1)) {
    return NMP_E_ARGUMENT;
  }
#if NMP_KEEP_STEPS
  if (threads > 1 && threads > net->options.threads) {
    return NMP_E_ARGUMENT;
  }
  nmp_step_limit(&net->steps[op], threads);
#endif
  return NMP_OK;
}

const char *nmp_cpu(const nmp_net *net) {
  return net ? net->options.cpu : NULL;
}

const char *nmp_version(void) {
  return NMP_VERSION;
}
