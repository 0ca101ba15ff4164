/* QEMU's riscv32 "virt": a 16550 UART, whose interrupt ends the sleep, and the count of retired instructions. */
#include "board.h"

#define UART ((volatile uint8_t *)0x10000000)
#define REG(address) (*(volatile uint32_t *)(uintptr_t)(address))
#define PLIC_PRIORITY(irq) REG(0x0C000000u + 4 * (irq))
#define PLIC_ENABLE REG(0x0C002000u)
#define PLIC_CLAIM REG(0x0C200004u)
#define UART_IRQ 10u
#define MEIE 0x800
#define LSR_RECEIVED 0x01
#define LSR_EMPTY 0x20
#define CLOCK_HZ 1000000000u

extern uint8_t __program_start[], __program_end[], __model[], __model_end[], __arena[], __arena_end[];

__attribute__((naked, section(".vectors"))) void reset_handler(void) {
  __asm volatile(
      ".option push\n .option norelax\n la gp, __global_pointer$\n .option pop\n"
      "la sp, __stack_top\n j start\n");
}

void board_init(void) {
  UART[2] = 7; /* FIFOs on, and empty */
  UART[1] = 1; /* interrupt on receive */
  PLIC_PRIORITY(UART_IRQ) = 1;
  PLIC_ENABLE = 1u << UART_IRQ;
  __asm volatile("csrs mie, %0" ::"r"(MEIE)); /* wakes; mstatus.MIE stays off, so nothing is trapped */
}

int board_getc(void) {
  while (!(UART[5] & LSR_RECEIVED)) {
    __asm volatile("wfi");
    PLIC_CLAIM = PLIC_CLAIM;
  }
  return UART[0];
}

void board_putc(uint8_t byte) {
  while (!(UART[5] & LSR_EMPTY)) {
  }
  UART[0] = byte;
}

static uint64_t retired(void) {
  uint32_t high, low, again;
  do {
    __asm volatile("csrr %0, minstreth\n csrr %1, minstret\n csrr %2, minstreth" : "=r"(high), "=r"(low), "=r"(again));
  } while (high != again);
  return (uint64_t)high << 32 | low;
}

uint64_t board_cycles(int start) {
  static uint64_t before;
  if (start) {
    before = retired();
  }
  return retired() - before;
}

void board_memory(agent_config *config) {
  config->board = "rv32";
  config->cpu = "rv32imac";
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
