/* QEMU's Avnet LX60 with an Xtensa lx106, the processor of an ESP8266: a 16550 UART, and the count of cycles, of which
 * an instruction takes a fixed number. */
#include "board.h"

#define UART ((volatile uint32_t *)0xFD050020)
#define LSR_RECEIVED 0x01
#define LSR_EMPTY 0x20
#define CLOCK_HZ 40000000u

extern uint8_t __program_start[], __program_end[], __model[], __model_end[], __arena[], __arena_end[];

__asm(
    ".text\n"
    ".global reset_handler\n"
    "reset_handler:\n"
    "movi a1, __stack_top\n"
    "movi a0, start\n"
    "jx a0\n");

void board_init(void) {
  UART[2] = 7; /* FIFOs on, and empty */
}

int board_getc(void) {
  while (!(UART[5] & LSR_RECEIVED)) {
  }
  return (uint8_t)UART[0];
}

void board_putc(uint8_t byte) {
  while (!(UART[5] & LSR_EMPTY)) {
  }
  UART[0] = byte;
}

uint64_t board_cycles(int start) {
  static uint32_t before;
  uint32_t now;
  __asm volatile("rsr.ccount %0" : "=r"(now));
  if (start) {
    before = now;
  }
  return now - before;
}

void board_memory(agent_config *config) {
  config->board = "lx60";
  config->cpu = "Xtensa lx106";
  config->counter = "instructions";
  config->clock_hz = CLOCK_HZ;
  config->counter_hz = CLOCK_HZ;
  config->ring_bytes = 4096; /* QEMU holds back what the FIFO cannot take */
  config->program_bytes = (uint32_t)(__program_end - __program_start);
  config->model = __model;
  config->model_bytes = (size_t)(__model_end - __model);
  config->arena = __arena;
  config->arena_bytes = (size_t)(__arena_end - __arena);
}
