/* One inference of each model. Exit code 0 when the outputs are those of its test vector, if it has one. */
#include <stdio.h>
#include <string.h>

@INCLUDES@

@VECTORS@typedef struct model {
  const char *name;
  const unsigned char *data;
  size_t bytes;
  const unsigned char *const *inputs, *const *outputs; /* of a test vector; NULL: there is none */
} model;

static const model models[] = {
@MODELS@
};
#define MODELS (sizeof(models) / sizeof(models[0]))

@ARENA@

static int failed(const char *what, nmp_status status) {
  printf("%s: %s\n", what, nmp_status_text(status));
  return 1;
}

static void print_output(const nmp_view *view) {
  printf("%s:", view->name);
  for (size_t k = 0; k < view->bytes * 8 / view->bits && k < 16; k++) {
    printf(" %d", view->bits == 8 ? ((const int8_t *)view->data)[k] : ((const int16_t *)view->data)[k]);
  }
  printf("\n");
}

static int run_model(const model *m) {
  nmp_net *net;
  nmp_info info;
  nmp_view view;
  nmp_fault fault;
  int differ = 0;
  nmp_status status = nmp_inspect(m->data, m->bytes, NULL, &info, &fault);
  if (status == NMP_OK) {
    printf("arena: %lu of %lu bytes\n", (unsigned long)info.arena_bytes, (unsigned long)@RAM@);
    status = nmp_create@SPLIT@(&net, m->data, m->bytes, @FAST@&arena, sizeof(arena), NULL, &fault);
  }
  if (status != NMP_OK) {
    return failed(fault.what ? fault.what : "create", status);
  }
  for (uint32_t i = 0; i < info.inputs; i++) {
    nmp_input(net, i, &view);
    if (m->inputs) {
      memcpy(view.data, m->inputs[i], view.bytes);
    } else if (nmp_state_of(net, i) < 0) { /* a state holds what a call leaves to the next one */
      memset(view.data, 0, view.bytes);    /* here go the integers of your input */
    }
  }
  status = nmp_run(net);
  if (status != NMP_OK) {
    return failed("run", status);
  }
  for (uint32_t i = 0; i < info.outputs; i++) {
    nmp_output(net, i, &view);
    print_output(&view);
    differ |= m->outputs && memcmp(view.data, m->outputs[i], view.bytes) != 0;
  }
  if (m->outputs) {
    printf(differ ? "the outputs DIFFER from the test vector\n" : "the outputs are those of the test vector\n");
  }
  return differ;
}

static int example(void) {
  int wrong = 0;
  for (size_t i = 0; i < MODELS; i++) {
    if (MODELS > 1) {
      printf("%s\n", models[i].name);
    }
    wrong |= run_model(&models[i]);
  }
  return wrong;
}
