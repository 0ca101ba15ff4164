/* Faults and the budget of verification, which its parts share. */
#include "core/model.h"

nmp_status nmp_fail(nmp_fault *fault, int64_t op, int64_t tensor, nmp_rule rule) {
  fault->status = rule.status;
  fault->op = (int32_t)op;
  fault->tensor = (int32_t)tensor;
#if NMP_FAULT_DETAILS
  fault->what = rule.what;
  fault->found = rule.found;
  fault->allowed = rule.allowed;
#else
  fault->what = NULL;
  fault->found = fault->allowed = 0;
#endif
  return rule.status;
}

int nmp_spend(nmp_needs *needs, uint64_t steps) {
  if (steps > needs->budget) {
    needs->budget = 0;
    return 0;
  }
  needs->budget -= steps;
  return 1;
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
      return "a null or misaligned pointer, or a number out of range";
    case NMP_E_ARENA:
      return "the arena is too small";
    case NMP_E_UNKNOWN_OP:
      return "an op that this version does not know";
    case NMP_E_NOT_BUILT:
      return "an op, a width or a kind of op that this build left out";
    case NMP_E_CPU:
      return "a CPU level that this machine or build does not have";
    case NMP_E_CUSTOM:
      return "a custom op that this program does not have";
  }
  return "an unknown status";
}

void nmp_clear(nmp_info *info) {
  info->major = info->minor = 0;
  info->inputs = info->outputs = info->ops = info->tensors = 0;
  info->arena_bytes = info->packed_bytes = info->activation_bytes = info->scratch_bytes = 0;
  info->work = 0;
  info->fast_bytes = 0;
}
