/* Espressif's ESP32-C3 at the 40 MHz of its crystal, with UART0 on pins 20 and 21, where boards with a USB bridge have
 * it. Registers: Espressif's ESP32-C3 Technical Reference Manual. */
#include "board.h"

#define REG(address) (*(volatile uint32_t *)(uintptr_t)(address))

#define UART 0x60000000u
#define UART_FIFO REG(UART + 0x00)
#define UART_INT_RAW REG(UART + 0x04)
#define UART_INT_ENA REG(UART + 0x0C)
#define UART_INT_CLR REG(UART + 0x10)
#define UART_CLKDIV REG(UART + 0x14) /* 12 bits, and sixteenths from bit 20 on */
#define UART_STATUS REG(UART + 0x1C) /* bytes: received, and to be sent from bit 16 on */
#define UART_CONF0 REG(UART + 0x20)
#define UART_CONF1 REG(UART + 0x24) /* bytes that interrupt */
#define UART_FSM_STATUS REG(UART + 0x6C)
#define UART_CLK_CONF REG(UART + 0x78)
#define UART_ID REG(UART + 0x80)
#define RTC_OPTIONS REG(0x60008000) /* bit 31: a reset of all */
#define RTC_WDT_CONFIG REG(0x60008090)
#define RTC_WDT_PROTECT REG(0x600080A8)
#define RTC_SWD_CONFIG REG(0x600080AC)
#define RTC_SWD_PROTECT REG(0x600080B0)
#define IO_MUX(pin) REG(0x60009004 + 4 * (pin))
#define TIMER_WDT_CONFIG(group) REG(0x6001F048 + 0x1000 * (group))
#define TIMER_WDT_PROTECT(group) REG(0x6001F064 + 0x1000 * (group))
#define SYSTEM_SYSCLK REG(0x600C0058)     /* source of the clock from bit 10 on, its divider less 1 */
#define INTERRUPT_OF_UART REG(0x600C2054) /* number of UART0's interrupt */
#define INTERRUPT_ENABLE REG(0x600C2104)
#define INTERRUPT_TYPE REG(0x600C2108) /* 0: as long as it is asked for */
#define INTERRUPT_PRIORITY(n) REG(0x600C2114 + 4 * (n))
#define INTERRUPT_THRESHOLD REG(0x600C2194)

#define CLOCK_HZ 40000000u
#define RING 4096u
#define ROOM 128u /* bytes, of each FIFO */
#define BYTES 0x3FFu
#define RECEIVED 0x01u
#define OVERRUN 0x10u
#define FORMAT 0x1000001Cu /* 8N1; the clock of the FIFOs is on */
#define RECEIVE_RESET 0x20000u
#define CRYSTAL 0x03700000u /* UART clocks on, from the crystal, not divided */
#define UPDATE 0x80000000u
#define WDT_KEY 0x50D83AA1u
#define SWD_KEY 0x8F1D312Au
#define SWD_FEEDS_ITSELF 0x80000000u
#define PIN_INPUT 0x300u /* an input, pulled up */
#define RX_PIN 20u
#define TX_PIN 21u
#define INTERRUPTS 8u /* bit of mstatus */
#define LINE 1u       /* the interrupt of the processor that the UART has */

extern uint8_t __model[], __model_end[], __arena[], __arena_end[], __program_bytes[];
void trap(void);

static const uint32_t rates[] = {115200u, 230400u, 460800u, 1000000u};
static volatile uint8_t ring[RING];
static volatile uint32_t head, tail; /* written by the interrupt, by board_getc */

/* Faults and all interrupts come to one function. */
__asm(
    ".section .vectors, \"ax\"\n"
    ".option push\n .option norvc\n .balign 256\n"
    "vectors: .rept 32\n j trap\n .endr\n"
    ".option pop\n"
    ".global reset_handler\n"
    "reset_handler:\n"
    ".option push\n .option norelax\n la gp, __global_pointer$\n .option pop\n"
    "la sp, __stack_top\n"
    "la a0, vectors\n"
    "ori a0, a0, 1\n"
    "csrw mtvec, a0\n"
    "j start\n"
    ".text\n");

/* A fault ends in a reset. After an overrun the FIFO begins anew. */
__attribute__((interrupt)) void trap(void) {
  uint32_t cause;
  __asm volatile("csrr %0, mcause" : "=r"(cause));
  if (!(cause >> 31)) {
    RTC_OPTIONS |= 1u << 31;
  }
  while (UART_STATUS & BYTES) {
    uint8_t byte = (uint8_t)UART_FIFO;
    if (head - tail < RING) {
      ring[head % RING] = byte;
      head++;
    }
  }
  if (UART_INT_RAW & OVERRUN) {
    UART_CONF0 = FORMAT | RECEIVE_RESET;
    UART_CONF0 = FORMAT;
  }
  UART_INT_CLR = RECEIVED | OVERRUN;
}

/* Stops the watchdogs, which reset a program that does not feed them: they are for those that may hang. */
static void watchdogs_off(void) {
  for (uint32_t group = 0; group < 2; group++) {
    TIMER_WDT_PROTECT(group) = WDT_KEY;
    TIMER_WDT_CONFIG(group) = 0;
    TIMER_WDT_PROTECT(group) = 0;
  }
  RTC_WDT_PROTECT = WDT_KEY;
  RTC_WDT_CONFIG = 0;
  RTC_WDT_PROTECT = 0;
  RTC_SWD_PROTECT = SWD_KEY;
  RTC_SWD_CONFIG |= SWD_FEEDS_ITSELF;
  RTC_SWD_PROTECT = 0;
}

static void set_rate(uint32_t rate) {
  while (UART_STATUS >> 16 & BYTES || UART_FSM_STATUS & 0xF0u) {
  }
  const uint32_t sixteenths = (CLOCK_HZ * 16u + rate / 2u) / rate;
  UART_CLKDIV = sixteenths / 16u | (sixteenths % 16u) << 20;
  UART_ID |= UPDATE;
  while (UART_ID & UPDATE) {
  }
}

void board_init(void) {
  watchdogs_off();
  SYSTEM_SYSCLK = 0;
  IO_MUX(RX_PIN) = PIN_INPUT;
  IO_MUX(TX_PIN) = 0;
  UART_INT_ENA = 0;
  UART_CLK_CONF = CRYSTAL;
  UART_CONF0 = FORMAT;
  UART_CONF1 = 1u;
  set_rate(rates[0]);
  UART_INT_CLR = UINT32_MAX;
  UART_INT_ENA = RECEIVED | OVERRUN;
  INTERRUPT_OF_UART = LINE;
  INTERRUPT_TYPE = 0;
  INTERRUPT_PRIORITY(LINE) = 15u;
  INTERRUPT_THRESHOLD = 1u;
  INTERRUPT_ENABLE = 1u << LINE;
  __asm volatile("csrw 0x7E0, %0\n csrw 0x7E1, %0" ::"r"(1)); /* count cycles; on */
  __asm volatile("csrs mstatus, %0" ::"r"(INTERRUPTS));
}

/* The test and the sleep are one step: an interrupt that is held back still ends wfi. */
int board_getc(void) {
  for (;;) {
    __asm volatile("csrc mstatus, %0" ::"r"(INTERRUPTS) : "memory");
    if (head != tail) {
      break;
    }
    __asm volatile("wfi\n csrs mstatus, %0" ::"r"(INTERRUPTS) : "memory");
  }
  __asm volatile("csrs mstatus, %0" ::"r"(INTERRUPTS) : "memory");
  uint8_t byte = ring[tail % RING];
  tail++;
  return byte;
}

void board_putc(uint8_t byte) {
  while ((UART_STATUS >> 16 & BYTES) >= ROOM) {
  }
  UART_FIFO = byte;
}

/* The line is deaf between the calls. The counter has 32 bits, 107 seconds. */
uint64_t board_cycles(int start) {
  static uint32_t before;
  uint32_t now;
  __asm volatile("csrr %0, 0x7E2" : "=r"(now));
  if (start) {
    UART_INT_ENA = 0;
    __asm volatile("csrr %0, 0x7E2" : "=r"(before));
    return 0;
  }
  UART_INT_ENA = RECEIVED | OVERRUN;
  return now - before;
}

void board_memory(agent_config *config) {
  config->board = "esp32c3";
  config->cpu = "rv32imc";
  config->counter = "cycles";
  config->clock_hz = CLOCK_HZ;
  config->counter_hz = CLOCK_HZ;
  config->ring_bytes = RING;
  config->rates = rates;
  config->rate_count = sizeof(rates) / sizeof(rates[0]);
  config->set_rate = set_rate;
  config->program_bytes = (uint32_t)(uintptr_t)__program_bytes;
  config->model = __model;
  config->model_bytes = (size_t)(__model_end - __model);
  config->arena = __arena;
  config->arena_bytes = (size_t)(__arena_end - __arena);
}
