/* Additions of a Cortex-M board to cortex_m.c: facts in config.h, and its UART. */
#ifndef NMP_CORTEX_M_H
#define NMP_CORTEX_M_H

#include <stdint.h>

#include "config.h"

#define REG(address) (*(volatile uint32_t *)(uintptr_t)(address))

/* Sends and receives, and interrupts when there is a byte; UART_RX_IRQ itself is turned on elsewhere. */
void uart_init(uint32_t rate);

/* Once all that was put has left. A byte that is wrong is handed on, too: it tells of another rate. */
void uart_set_rate(uint32_t rate);

/* The interrupt: hands on every byte that there is. */
void uart_handler(void);

void ring_put(uint8_t byte);

#endif
