/* UART0 of an nRF52840 on pins P0.06 and P0.08. Registers: Nordic's product specification, chapters UART, CLOCK, NVMC
 * and GPIO. */
#include "board.h"
#include "cortex_m.h"

#define CLOCK_START REG(0x40000000)   /* TASKS_HFCLKSTART: the crystal, without which rates are off */
#define CLOCK_STARTED REG(0x40000100) /* EVENTS_HFCLKSTARTED */
#define NVMC_ICACHE REG(0x4001E540)   /* bit 0: flash through its cache */
#define GPIO_OUTSET REG(0x50000508)
#define GPIO_PIN_CNF(pin) REG(0x50000700 + 4 * (pin)) /* 0: an input, 1: an output, and read by none */
#define UART_START_RECEIVE REG(UART + 0x000)
#define UART_START_SEND REG(UART + 0x008)
#define UART_RECEIVED REG(UART + 0x108) /* events; written to 0 by who saw them */
#define UART_SENT REG(UART + 0x11C)
#define UART_ERROR REG(UART + 0x124)
#define UART_INTENSET REG(UART + 0x304)
#define UART_ERRORSRC REG(UART + 0x480) /* write 1 to clear */
#define UART_ENABLE REG(UART + 0x500)
#define UART_PSEL_TXD REG(UART + 0x50C)
#define UART_PSEL_RXD REG(UART + 0x514)
#define UART_RXD REG(UART + 0x518)
#define UART_TXD REG(UART + 0x51C)
#define UART_BAUDRATE REG(UART + 0x524)

#define TX_PIN 6u
#define RX_PIN 8u
#define PIN_OUTPUT 3u
#define INTERRUPTS 0x204u /* a byte, or an error */
#define WRONG_STOP 0xCu   /* of ERRORSRC: a framing error or a break */
#define ON 4u

static uint32_t setting(uint32_t rate) {
  return rate == 115200u ? 0x01D7E000u : rate == 230400u ? 0x03AFB000u : 0x10000000u;
}

void uart_init(uint32_t rate) {
  NVMC_ICACHE = 1u;
  CLOCK_STARTED = 0;
  CLOCK_START = 1u;
  while (!CLOCK_STARTED) {
  }
  GPIO_OUTSET = 1u << TX_PIN;
  GPIO_PIN_CNF(TX_PIN) = PIN_OUTPUT;
  GPIO_PIN_CNF(RX_PIN) = 0;
  UART_PSEL_TXD = TX_PIN;
  UART_PSEL_RXD = RX_PIN;
  UART_BAUDRATE = setting(rate);
  UART_ENABLE = ON;
  UART_RECEIVED = 0;
  UART_ERROR = 0;
  UART_INTENSET = INTERRUPTS;
  UART_START_SEND = 1u;
  UART_START_RECEIVE = 1u;
}

/* Nothing is on its way: board_putc has waited for each byte. */
void uart_set_rate(uint32_t rate) {
  UART_BAUDRATE = setting(rate);
}

/* An event is cleared before its byte is read, so that the next byte raises it again. A byte with a wrong stop bit does
 * not get into RXD; a 0 stands for it. */
void uart_handler(void) {
  if (UART_ERROR) {
    UART_ERROR = 0;
    uint32_t source = UART_ERRORSRC;
    UART_ERRORSRC = source;
    if (source & WRONG_STOP) {
      ring_put(0);
    }
  }
  while (UART_RECEIVED) {
    UART_RECEIVED = 0;
    ring_put((uint8_t)UART_RXD);
  }
}

void board_putc(uint8_t byte) {
  UART_SENT = 0;
  UART_TXD = byte;
  while (!UART_SENT) {
  }
}
