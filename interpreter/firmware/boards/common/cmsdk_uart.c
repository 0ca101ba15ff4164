/* The CMSDK UART of Arm's MPS boards. */
#include "board.h"
#include "cortex_m.h"

#define UART_DATA REG(UART + 0x00)
#define UART_STATE REG(UART + 0x04) /* bit 0: cannot take a byte; bit 1: has one */
#define UART_CTRL REG(UART + 0x08)
#define UART_INTSTATUS REG(UART + 0x0C) /* write 1 to clear */
#define UART_BAUDDIV REG(UART + 0x10)

static uint32_t divisor(uint32_t rate) {
  return (CLOCK_HZ + rate / 2) / rate;
}

void uart_init(uint32_t rate) {
  UART_BAUDDIV = divisor(rate);
  UART_CTRL = 0xB; /* send, receive, interrupt on receive */
}

/* It does not tell when a byte has left: the second one behind it is taken when it has. */
void uart_set_rate(uint32_t rate) {
  board_putc(0);
  board_putc(0);
  UART_BAUDDIV = divisor(rate);
}

/* Cleared before, so that a byte that comes meanwhile interrupts again. */
void uart_handler(void) {
  UART_INTSTATUS = 2u;
  while (UART_STATE & 2u) {
    ring_put((uint8_t)UART_DATA);
  }
}

void board_putc(uint8_t byte) {
  while (UART_STATE & 1u) {
  }
  UART_DATA = byte;
}
