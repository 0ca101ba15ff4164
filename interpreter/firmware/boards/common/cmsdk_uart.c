/* The CMSDK UART of Arm's MPS boards. */
#include "board.h"
#include "cortex_m.h"

#define UART_DATA REG(UART + 0x00)
#define UART_STATE REG(UART + 0x04) /* bit 0: cannot take a byte; bit 1: has one */
#define UART_CTRL REG(UART + 0x08)
#define UART_INTSTATUS REG(UART + 0x0C) /* write 1 to clear */
#define UART_BAUDDIV REG(UART + 0x10)

void uart_init(void) {
  UART_BAUDDIV = CLOCK_HZ / BAUD;
  UART_CTRL = 0xB; /* send, receive, interrupt on receive */
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
