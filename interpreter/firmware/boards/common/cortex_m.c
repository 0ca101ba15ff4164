/* All of a Cortex-M board but its UART: start, input by interrupt into a ring, the cycle counter or SysTick. */
#include "cortex_m.h"

#include "board.h"

#define SYST_CSR REG(0xE000E010)
#define SYST_RVR REG(0xE000E014)
#define SYST_CVR REG(0xE000E018)
#define NVIC_ISER(n) REG(0xE000E100 + 4 * (n))
#define NVIC_ICER(n) REG(0xE000E180 + 4 * (n))
#define UART_IRQ_BIT (1u << (UART_RX_IRQ % 32))
#define CCR REG(0xE000ED14)
#define UNALIGN_TRP 8u
#define CPACR REG(0xE000ED88)
#define DEMCR REG(0xE000EDFC)
#define DWT_CTRL REG(0xE0001000)
#define DWT_CYCCNT REG(0xE0001004)

#define SYSTICK_RANGE 0x1000000u

extern uint32_t __stack_top[], __data_start[], __data_end[], __data_load[], __bss_start[], __bss_end[];
extern uint8_t __program_start[], __program_end[];
int main(void);
void reset_handler(void);

static volatile uint8_t ring[RING];
static volatile uint32_t head, tail; /* written by the interrupt, by board_getc */
static volatile uint32_t wraps;
static int has_cyccnt;
static const uint32_t rates[] = {RATES};

void ring_put(uint8_t byte) {
  if (head - tail < RING) {
    ring[head % RING] = byte;
    head++;
  }
}

static void systick_handler(void) {
  wraps++;
}

/* A fault ends in a reset, and the host finds the upload where it was. */
static void fault_handler(void) {
  REG(0xE000ED0C) = 0x05FA0004u;
  for (;;) {
  }
}

typedef void (*handler)(void);

__attribute__((section(".vectors"), used)) static const struct {
  uint32_t *stack;
  handler reset, faults[13], systick, irqs[UART_RX_IRQ + 1];
} vectors = {
    __stack_top,
    reset_handler,
    {fault_handler, fault_handler, fault_handler, fault_handler, fault_handler},
    systick_handler,
    {[UART_RX_IRQ] = uart_handler},
};

void reset_handler(void) {
  uint32_t *from = __data_load;
  for (uint32_t *to = __data_start; to < __data_end;) {
    *to++ = *from++;
  }
  for (uint32_t *to = __bss_start; to < __bss_end;) {
    *to++ = 0;
  }
#if __ARM_ARCH_ISA_THUMB == 1
  CCR |= UNALIGN_TRP; /* as it always is on a Cortex-M0+, also where another CPU runs its instructions */
#else
  CPACR |= 0xFu << 20; /* the coprocessors that compilers may use */
#endif
  __asm volatile("dsb\n isb");
  main();
  for (;;) {
  }
}

void board_init(void) {
  uart_init(rates[0]);
  NVIC_ISER(UART_RX_IRQ / 32) = UART_IRQ_BIT;
#if __ARM_ARCH_ISA_THUMB > 1
  DEMCR |= 1u << 24;
  DWT_CYCCNT = 0;
  DWT_CTRL |= 1u;
  for (volatile int i = 0; i < 100; i++) {
  }
  has_cyccnt = DWT_CYCCNT != 0; /* simulators have none, nor has a Cortex-M0+ */
#endif
  SYST_RVR = SYSTICK_RANGE - 1;
  SYST_CVR = 0;
  SYST_CSR = 7;
}

/* The test and the sleep are one step: an interrupt in between still ends wfi. */
int board_getc(void) {
  for (;;) {
    __asm volatile("cpsid i" ::: "memory");
    if (head != tail) {
      break;
    }
    __asm volatile("wfi\n cpsie i\n isb" ::: "memory");
  }
  __asm volatile("cpsie i" ::: "memory");
  uint8_t byte = ring[tail % RING];
  tail++;
  return byte;
}

static uint64_t systicks(void) {
  uint32_t value, before;
  do {
    before = wraps;
    value = SYST_CVR;
  } while (before != wraps);
  return (uint64_t)before * SYSTICK_RANGE + (SYSTICK_RANGE - value) % SYSTICK_RANGE; /* 0 until its first tick */
}

/* Both counters start at 0, and input does not interrupt, so equal work counts equally. */
uint64_t board_cycles(int start) {
  if (start) {
    NVIC_ICER(UART_RX_IRQ / 32) = UART_IRQ_BIT;
    __asm volatile("dsb\n isb" ::: "memory");
    if (has_cyccnt) {
      DWT_CYCCNT = 0;
    }
    SYST_CVR = 0;
    wraps = 0;
    return 0;
  }
  uint64_t ticks = has_cyccnt ? DWT_CYCCNT : systicks();
  NVIC_ISER(UART_RX_IRQ / 32) = UART_IRQ_BIT;
  return ticks;
}

void board_memory(agent_config *config) {
  config->board = BOARD;
  config->cpu = CPU;
  config->counter = has_cyccnt ? "cycles" : "systick";
  config->clock_hz = CLOCK_HZ;
  config->counter_hz = CLOCK_HZ;
  config->ring_bytes = RING;
  config->rates = rates;
  config->rate_count = sizeof(rates) / sizeof(rates[0]);
  config->set_rate = uart_set_rate;
  config->program_bytes = (uint32_t)(__program_end - __program_start) + (uint32_t)((__data_end - __data_start) * 4);
  config->model = (uint8_t *)(uintptr_t)MODEL_ADDRESS;
  config->model_bytes = MODEL_BYTES;
  config->arena = (uint8_t *)(uintptr_t)ARENA_ADDRESS;
  config->arena_bytes = ARENA_BYTES;
}
