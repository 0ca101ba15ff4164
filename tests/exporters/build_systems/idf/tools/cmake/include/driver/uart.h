/* In place of ESP-IDF's UART: it is stdin and stdout. Nothing is heard or said before the driver is installed. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define UART_NUM_0 0
#define portMAX_DELAY 0xffffffffu

static int uart_installed;

static inline int uart_driver_install(int port, int receives, int sends, int events, void *queue, int flags) {
  (void)port, (void)sends, (void)events, (void)queue, (void)flags;
  uart_installed = receives > 128; /* more than the hardware's own */
  return 0;
}

static inline int uart_set_baudrate(int port, uint32_t rate) {
  (void)port, (void)rate;
  return 0;
}

static inline int uart_read_bytes(int port, void *to, uint32_t bytes, uint32_t ticks) {
  (void)port, (void)ticks;
  return uart_installed && fread(to, 1, bytes, stdin) == bytes ? (int)bytes : -1;
}

static inline int uart_write_bytes(int port, const void *from, size_t bytes) {
  (void)port;
  const size_t written = fwrite(from, 1, bytes, stdout);
  fflush(stdout);
  return (int)written;
}
