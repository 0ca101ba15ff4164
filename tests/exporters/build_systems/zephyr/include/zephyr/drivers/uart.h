/* In place of Zephyr's UARTs: stdin interrupts whenever the program waits for a message, if interrupts are enabled. */
#ifndef ZEPHYR_UART_H
#define ZEPHYR_UART_H

#include <stdint.h>
#include <stdio.h>
#include <zephyr/device.h>

typedef void (*uart_irq_callback_user_data_t)(const struct device *, void *);
static uart_irq_callback_user_data_t uart_callback;
static int uart_enabled, uart_waiting = EOF;

static inline int uart_irq_callback_user_data_set(const struct device *d, uart_irq_callback_user_data_t call, void *u) {
  (void)d, (void)u;
  uart_callback = call;
  return 0;
}

static inline void uart_irq_rx_enable(const struct device *d) {
  (void)d;
  uart_enabled = 1;
}

static inline int uart_irq_update(const struct device *d) {
  (void)d;
  return 1;
}

static inline int uart_irq_rx_ready(const struct device *d) {
  (void)d;
  return uart_waiting != EOF;
}

static inline int uart_fifo_read(const struct device *d, uint8_t *to, int bytes) {
  (void)d;
  if (uart_waiting == EOF || bytes < 1) {
    return 0;
  }
  *to = (uint8_t)uart_waiting;
  uart_waiting = EOF;
  return 1;
}

static inline void uart_poll_out(const struct device *d, unsigned char byte) {
  (void)d;
  putchar(byte);
}

#endif
