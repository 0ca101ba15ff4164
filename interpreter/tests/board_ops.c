/* Ops on a board: files with test vectors, whose outputs are compared.
 *
 * The host has put into the model's memory, for each file: its bytes (32 bits, then 12 more bytes), the file up to a
 * multiple of 16 bytes; 0 bytes end. An arena has exactly the size that this board asks for.
 */
#include <stdio.h>
#include <string.h>

#include "board.h"
#include "core/model.h"
#include "gen/nmp_schema.h"

static unsigned runs, failed;

static void expect(unsigned file, int condition, const char *what) {
  if (!condition) {
    failed++;
    printf("file %u: %s\n", file, what);
  }
}

static void run_vectors(unsigned file, nmp_net *net, const nmp_model *m) {
  const fb_vector vectors = fb_model_test_vectors(m->root);
  expect(file, vectors.count > 0, "no test vectors");
  for (uint32_t v = 0; v < vectors.count; v++) {
    const fb_vector inputs = fb_test_vector_inputs(fb_element(vectors, v)),
                    outputs = fb_test_vector_outputs(fb_element(vectors, v));
    nmp_view view;
    for (uint32_t i = 0; i < inputs.count && nmp_input(net, i, &view) == NMP_OK; i++) {
      memcpy(view.data, fb_bytes_data(fb_element(inputs, i)).data, view.bytes);
    }
    expect(file, nmp_run(net) == NMP_OK, "a run fails");
    for (uint32_t i = 0; i < outputs.count && nmp_output(net, i, &view) == NMP_OK; i++) {
      runs++;
      expect(file, memcmp(view.data, fb_bytes_data(fb_element(outputs, i)).data, view.bytes) == 0, "another output");
    }
  }
}

int main(void) {
  agent_config board;
  board_init();
  board_memory(&board);
  const uint8_t *at = board.model;
  for (unsigned file = 0;; file++) {
    const uint32_t bytes = *(const uint32_t *)(const void *)at;
    const uint8_t *data = at + 16;
    nmp_info info;
    nmp_model m = {.options = NULL};
    nmp_net *net = NULL;
    if (bytes == 0) {
      break;
    }
    if (nmp_inspect(data, bytes, NULL, &info, NULL) != NMP_OK || info.arena_bytes > board.arena_bytes ||
        nmp_create(&net, data, bytes, board.arena, info.arena_bytes, NULL, NULL) != NMP_OK ||
        nmp_model_open(&m, data, bytes, NULL) != NMP_OK) {
      expect(file, 0, "refused");
    } else {
      run_vectors(file, net, &m);
    }
    at = data + ((size_t)bytes + 15) / 16 * 16;
  }
  printf("%u outputs, %u differ\n", runs, failed);
  return failed > 0;
}
