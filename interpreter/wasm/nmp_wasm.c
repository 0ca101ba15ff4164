/* The interpreter as a WebAssembly module without imports. Its memory belongs to the caller, who asks for pieces of it
 * with nmp_wasm_take; one instance of the module has one net. nmp_runtime.mjs is the other side.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "nmp.h"

#define EXPORT(name) __attribute__((export_name(#name)))
#define PAGE 65536u
#define ALIGN 64u

extern unsigned char __heap_base;
static uintptr_t top;
static nmp_net *net;
static nmp_fault fault;
static nmp_info info;
static nmp_view view;

/* So many bytes, aligned, that stay taken; 0: the memory does not grow so far. */
EXPORT(take) void *take(size_t bytes);
void *take(size_t bytes) {
  const uintptr_t at = ((top ? top : (uintptr_t)&__heap_base) + ALIGN - 1) & ~(uintptr_t)(ALIGN - 1);
  const size_t have = __builtin_wasm_memory_size(0) * PAGE;
  if (bytes > UINT32_MAX - PAGE - at) {
    return NULL;
  }
  if (at + bytes > have && __builtin_wasm_memory_grow(0, (at + bytes - have + PAGE - 1) / PAGE) == SIZE_MAX) {
    return NULL;
  }
  top = at + bytes;
  return (void *)at;
}

/* Makes the net of a file that is there, by kernels of the level of this name, NULL: the best. A status. */
EXPORT(create) nmp_status create(const void *model, size_t bytes, const char *cpu);
nmp_status create(const void *model, size_t bytes, const char *cpu) {
  const nmp_options options = {.cpu = cpu};
  nmp_status status = nmp_inspect(model, bytes, &options, &info, &fault);
  void *arena = status ? NULL : take(info.arena_bytes);
  if (status) {
    return status;
  }
  return arena ? nmp_create(&net, model, bytes, arena, info.arena_bytes, &options, &fault) : NMP_E_ARENA;
}

/* Text of the last fault's status, its op and its tensor (-1: none). The broken rule is left to `nmpconv inspect`. */
EXPORT(status_text) const char *status_text(nmp_status status);
const char *status_text(nmp_status status) {
  return nmp_status_text(status);
}

EXPORT(fault_op) int32_t fault_op(void);
int32_t fault_op(void) {
  return fault.op;
}

EXPORT(fault_tensor) int32_t fault_tensor(void);
int32_t fault_tensor(void) {
  return fault.tensor;
}

EXPORT(arena_bytes) size_t arena_bytes(void);
size_t arena_bytes(void) {
  return info.arena_bytes;
}

EXPORT(inputs) uint32_t inputs(void);
uint32_t inputs(void) {
  return info.inputs;
}

EXPORT(outputs) uint32_t outputs(void);
uint32_t outputs(void) {
  return info.outputs;
}

/* Looks at input or output i: the view that follows is of it. A status. */
EXPORT(look) nmp_status look(int is_output, uint32_t i);
nmp_status look(int is_output, uint32_t i) {
  return is_output ? nmp_output(net, i, &view) : nmp_input(net, i, &view);
}

EXPORT(view_name) const char *view_name(void);
const char *view_name(void) {
  return view.name;
}

EXPORT(view_data) void *view_data(void);
void *view_data(void) {
  return view.data;
}

EXPORT(view_bytes) size_t view_bytes(void);
size_t view_bytes(void) {
  return view.bytes;
}

EXPORT(view_bits) int view_bits(void);
int view_bits(void) {
  return view.bits;
}

EXPORT(view_rank) int view_rank(void);
int view_rank(void) {
  return view.rank;
}

EXPORT(view_shape) const int32_t *view_shape(void);
const int32_t *view_shape(void) {
  return view.shape;
}

EXPORT(view_clip_min) int32_t view_clip_min(void);
int32_t view_clip_min(void) {
  return view.clip_min;
}

EXPORT(view_clip_max) int32_t view_clip_max(void);
int32_t view_clip_max(void) {
  return view.clip_max;
}

/* Exponents along an axis, -1: one for all; offsets of each, float32, NULL: none; and the origin, as the bits of one.
 */
EXPORT(view_axis) int view_axis(void);
int view_axis(void) {
  return view.axis;
}

EXPORT(view_exponents) const int8_t *view_exponents(void);
const int8_t *view_exponents(void) {
  return view.exponents;
}

EXPORT(view_exponent_count) uint32_t view_exponent_count(void);
uint32_t view_exponent_count(void) {
  return view.exponent_count;
}

EXPORT(view_offsets) const uint8_t *view_offsets(void);
const uint8_t *view_offsets(void) {
  return view.offsets;
}

/* Factors of 2^exponent likewise, NULL: all are 1. */
EXPORT(view_mantissas) const uint8_t *view_mantissas(void);
const uint8_t *view_mantissas(void) {
  return view.mantissas;
}

EXPORT(view_origin) uint32_t view_origin(void);
uint32_t view_origin(void) {
  return view.origin;
}

/* The output that input i takes over; -1: none. */
EXPORT(state_of) int32_t state_of(uint32_t i);
int32_t state_of(uint32_t i) {
  return nmp_state_of(net, i);
}

EXPORT(run) nmp_status run(void);
nmp_status run(void) {
  return nmp_run(net);
}

EXPORT(reset) nmp_status reset(void);
nmp_status reset(void) {
  return nmp_reset(net);
}

EXPORT(cpu) const char *cpu(void);
const char *cpu(void) {
  return nmp_cpu(net);
}

EXPORT(cpu_level) const char *cpu_level(size_t i);
const char *cpu_level(size_t i) {
  return nmp_cpu_level(i);
}

EXPORT(version) const char *version(void);
const char *version(void) {
  return nmp_version();
}
