/* In place of Zephyr's kernel: a queue of bytes, which waits for the UART, and a counter of microseconds. */
#ifndef ZEPHYR_KERNEL_H
#define ZEPHYR_KERNEL_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <zephyr/drivers/uart.h>

#define K_NO_WAIT 0
#define K_FOREVER 1

struct k_msgq {
  uint8_t *bytes;
  size_t size, first, count;
};
#define K_MSGQ_DEFINE(name, width, length, align) \
  static uint8_t name##_bytes[(length) / ((width) == 1)]; \
  struct k_msgq name = {name##_bytes, length, 0, 0}

static inline int k_msgq_put(struct k_msgq *q, const void *from, int timeout) {
  (void)timeout;
  if (q->count == q->size) {
    return -1;
  }
  q->bytes[(q->first + q->count++) % q->size] = *(const uint8_t *)from;
  return 0;
}

static inline int k_msgq_get(struct k_msgq *q, void *to, int timeout) {
  (void)timeout;
  while (q->count == 0) {
    fflush(stdout);
    uart_waiting = getchar();
    if (uart_waiting == EOF || !uart_enabled) {
      return -1;
    }
    uart_callback(&the_device, NULL);
  }
  *(uint8_t *)to = q->bytes[q->first];
  q->first = (q->first + 1) % q->size;
  q->count--;
  return 0;
}

static inline uint32_t k_cycle_get_32(void) {
  return (uint32_t)((uint64_t)clock() * 1000000u / CLOCKS_PER_SEC);
}

static inline uint64_t k_cyc_to_ns_floor64(uint64_t cycles) {
  return cycles * 1000u;
}

static inline uint32_t k_cyc_to_us_floor32(uint32_t cycles) {
  return cycles;
}

static inline int sys_clock_hw_cycles_per_sec(void) {
  return 1000000;
}

#endif
