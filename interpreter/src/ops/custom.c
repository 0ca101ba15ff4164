/* An op of the program's own, found by its name: in the table of nmp_options, then among those compiled in. */
#include "ops/common/check.h"

typedef char inputs_are_at_hand[NMP_CUSTOM_INPUTS_MAX <= NMP_OP_INPUTS_MAX ? 1 : -1];

#define DECLARE(row) extern const nmp_custom_op row;
#define ADDRESS(row) &row,

NMP_BUILD_CUSTOM(DECLARE)
static const nmp_custom_op *const compiled_in[] = {NMP_BUILD_CUSTOM(ADDRESS) NULL};

const nmp_custom_op nmp_custom_any[1] = {{NULL, NULL, NULL}};

static int same(const char *a, const char *b) {
  while (*a != '\0' && *a == *b) {
    a++;
    b++;
  }
  return *a == *b;
}

static const nmp_custom_op *find(const nmp_op *op) {
  const char *name = op->params.custom.op;
  for (const nmp_custom_op *row = op->threads->custom; row && row->name; row++) {
    if (same(row->name, name)) {
      return row;
    }
  }
  for (const nmp_custom_op *const *row = compiled_in; *row; row++) {
    if (same((*row)->name, name)) {
      return *row;
    }
  }
  return NULL;
}

static nmp_custom_call call_of(const nmp_op *op) {
  const nmp_custom_params *p = &op->params.custom;
  return (nmp_custom_call){.inputs = op->in,
                           .input_count = op->input_count,
                           .output = &op->out[0],
                           .attributes = p->attributes,
                           .attribute_count = p->attributes_count,
                           .scratch = op->scratch,
                           .scratch_bytes = (uint32_t)p->scratch};
}

static nmp_rule custom_check(const nmp_op *op) {
  const int32_t scratch = op->params.custom.scratch;
  const nmp_custom_op *row = find(op);
  const int any = op->threads->custom == nmp_custom_any;
  if (row == NULL && !any) {
    return NMP_RULE(NMP_E_CUSTOM, op->params.custom.op, 0, 0);
  }
  NMP_TRY(nmp_check_inputs(op, 1, NMP_CUSTOM_INPUTS_MAX, op->input_count));
  NMP_REQUIRE(scratch >= 0 && scratch <= NMP_CUSTOM_SCRATCH_MAX, "scratch", scratch, NMP_CUSTOM_SCRATCH_MAX);
  if (row) {
    const nmp_custom_call call = call_of(op);
    NMP_REQUIRE(row->check(&call), "shapes, widths, exponents or attributes of a custom op", 0, 0);
  }
  return NMP_FINE;
}

static size_t custom_scratch(const nmp_op *op) {
  return ((size_t)op->params.custom.scratch + 15) / 16 * 16;
}

static void custom_run(const nmp_op *op) {
  const nmp_custom_call call = call_of(op);
  const nmp_custom_op *row = find(op);
  if (row) { /* else nmp_create refused it */
    row->run(&call);
  }
}

const nmp_op_type nmp_custom_type = {.check = custom_check, .scratch = custom_scratch, .run = custom_run};
