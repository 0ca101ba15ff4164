#include "nmp.h"

#include "cpu.h"
#include "gen/nmp_schema.h"
#include "model.h"

/* The arena: this handle, the activations, the scratch of the hungriest op. */
struct nmp_net {
  nmp_model model;
  void *scratch;
  const char *cpu;
  nmp_kernels kernels;
  nmp_options options;
};

static uint64_t align(uint64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

static int misaligned(const void *p) {
  return p == NULL || (uintptr_t)p % NMP_ALIGN != 0;
}

static nmp_status refuse(nmp_fault *fault, nmp_status status, const char *what, int64_t found, int64_t allowed) {
  return nmp_fail(fault, status, -1, -1, (nmp_rule){what, found, allowed});
}

static nmp_status verify(nmp_model *m, const void *file, size_t bytes, nmp_info *info, nmp_fault *fault) {
  nmp_needs needs;
  *info = (nmp_info){0};
  if (misaligned(file)) {
    return refuse(fault, NMP_E_ARGUMENT, "alignment of the model", (int64_t)((uintptr_t)file % NMP_ALIGN), NMP_ALIGN);
  }
  nmp_status status = nmp_model_open(m, (const uint8_t *)file, bytes, fault);
  if (status == NMP_OK) {
    status = nmp_model_check(m, &needs, fault);
  }
  if (status != NMP_OK) {
    return status;
  }
  uint64_t arena = align(sizeof(nmp_net)) + align(m->arena_bytes) + needs.scratch;
  if (arena > SIZE_MAX) {
    return refuse(fault, NMP_E_LIMIT, "bytes of the arena", (int64_t)arena, (int64_t)(SIZE_MAX >> 1));
  }
  info->major = fb_model_major(m->root);
  info->minor = fb_model_minor(m->root);
  info->inputs = m->inputs.count;
  info->outputs = m->outputs.count;
  info->ops = m->ops.count;
  info->tensors = m->tensors.count;
  info->arena_bytes = (size_t)arena;
  info->work = needs.work;
  return refuse(fault, NMP_OK, NULL, 0, 0);
}

nmp_status nmp_inspect(const void *model, size_t bytes, nmp_info *info, nmp_fault *fault) {
  nmp_model m;
  nmp_fault unwanted;
  if (info == NULL) {
    return refuse(fault ? fault : &unwanted, NMP_E_ARGUMENT, "info", 0, 0);
  }
  return verify(&m, model, bytes, info, fault ? fault : &unwanted);
}

nmp_status nmp_create(nmp_net **net, const void *model, size_t bytes, void *arena, size_t arena_bytes,
                      const nmp_options *options, nmp_fault *fault) {
  static const nmp_options defaults = {NULL, NULL, NULL, 0};
  nmp_model m;
  nmp_info info;
  nmp_fault unwanted;
  fault = fault ? fault : &unwanted;
  options = options ? options : &defaults;
  if (net == NULL || misaligned(arena)) {
    return refuse(fault, NMP_E_ARGUMENT, "alignment of the arena", (int64_t)((uintptr_t)arena % NMP_ALIGN), NMP_ALIGN);
  }
  nmp_status status = verify(&m, model, bytes, &info, fault);
  if (status != NMP_OK) {
    return status;
  }
  if (arena_bytes < info.arena_bytes) {
    return refuse(fault, NMP_E_ARENA, "bytes of the arena", (int64_t)arena_bytes, (int64_t)info.arena_bytes);
  }
  nmp_net *made = (nmp_net *)arena;
  made->cpu = nmp_cpu_select(options->cpu, &made->kernels);
  if (made->cpu == NULL) {
    return refuse(fault, NMP_E_CPU, "CPU level", 0, 0);
  }
  made->options = *options;
  made->options.cpu = made->cpu;
  made->model = m;
  made->model.arena = (uint8_t *)arena + align(sizeof(nmp_net));
  made->scratch = made->model.arena + align(m.arena_bytes);
  *net = made;
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
  nmp_op op;
  op.scratch = net->scratch;
  op.kernels = &net->kernels;
  op.threads = &net->options;
  for (uint32_t i = first; i < last; i++) {
    nmp_model_op(&net->model, i, &op);
    nmp_op_table[op.kind]->run(&op);
  }
  return NMP_OK;
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
      return "an op that this build left out";
    case NMP_E_CPU:
      return "a CPU level that this machine or build does not have";
  }
  return "an unknown status";
}
