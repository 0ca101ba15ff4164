/* An example: one inference. Exit code 0 when the outputs are those of the test vector, if there is one. */
#include <stdio.h>
#include <string.h>

#include "model_data.h"
#include "nmp.h"

@VECTORS@static MODEL_ALIGNED unsigned char arena[MODEL_ARENA_BYTES];

static int failed(const char *what, nmp_status status) {
  printf("%s: %s\n", what, nmp_status_text(status));
  return 1;
}

int main(void) {
  nmp_net *net;
  nmp_info info;
  nmp_view view;
  nmp_fault fault;
  int differ = 0;
  nmp_status status = nmp_inspect(model_data, MODEL_BYTES, NULL, &info, &fault);
  if (status == NMP_OK) {
    printf("arena: %lu of %lu bytes\n", (unsigned long)info.arena_bytes, (unsigned long)sizeof(arena));
    status = nmp_create(&net, model_data, MODEL_BYTES, arena, sizeof(arena), NULL, &fault);
  }
  if (status != NMP_OK) {
    return failed(fault.what ? fault.what : "create", status);
  }
  for (uint32_t i = 0; i < info.inputs; i++) {
    nmp_input(net, i, &view);
#if MODEL_HAS_TEST_VECTOR
    memcpy(view.data, inputs[i], view.bytes);
#else
    if (nmp_state_of(net, i) < 0) {     /* a state holds what a call leaves to the next one */
      memset(view.data, 0, view.bytes); /* here go the integers of your input */
    }
#endif
  }
  status = nmp_run(net);
  if (status != NMP_OK) {
    return failed("run", status);
  }
  for (uint32_t i = 0; i < info.outputs; i++) {
    nmp_output(net, i, &view);
    printf("%s:", view.name);
    for (size_t k = 0; k < view.bytes * 8 / view.bits && k < 16; k++) {
      printf(" %d", view.bits == 8 ? ((const int8_t *)view.data)[k] : ((const int16_t *)view.data)[k]);
    }
    printf("\n");
#if MODEL_HAS_TEST_VECTOR
    differ |= memcmp(view.data, outputs[i], view.bytes) != 0;
#endif
  }
#if MODEL_HAS_TEST_VECTOR
  printf(differ ? "the outputs DIFFER from the test vector\n" : "the outputs are those of the test vector\n");
#endif
  return differ;
}
