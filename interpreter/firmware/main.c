#include "board.h"

static void put(void *to, const uint8_t *data, size_t bytes) {
  (void)to;
  for (size_t i = 0; i < bytes; i++) {
    board_putc(data[i]);
  }
}

int main(void) {
  static agent a;
  agent_config config = {0};
  int byte;
  board_init();
  board_memory(&config);
  config.cycles = board_cycles;
  config.put = put;
  agent_init(&a, &config);
  while ((byte = board_getc()) >= 0) {
    agent_push(&a, (uint8_t)byte);
  }
  return 0;
}
