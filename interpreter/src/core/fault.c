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
