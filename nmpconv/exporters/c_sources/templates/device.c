/* Is the device of `nmpconv bench FILE --device PORT`: takes files that have the ops of this bundle, runs them, and
 * answers with outputs and times.
 */
#include "@HEADER@"

#include "agent/agent.h"

#define FILE_BYTES @FILE@ /* RAM for a file, its inputs and 8 bytes an op: as much as you have */
#define ARENA_BYTES @ARENA@ /* RAM of a run */
#define RATE 115200 /* bits a second */
#define RING_BYTES 1024 /* taken in while the agent is busy */

@PROCESSOR@
#if defined(ESP_PLATFORM)
#include "driver/uart.h"
#include "esp_timer.h"
#include "sdkconfig.h"
#define BOARD CONFIG_IDF_TARGET
#define CLOCK_HZ (CONFIG_ESP_DEFAULT_CPU_FREQ_MHZ * 1000000u)
#define LINE UART_NUM_0 /* where boards have their USB bridge */

static void line_open(void) {
  uart_driver_install(LINE, RING_BYTES, 0, 0, NULL, 0);
  uart_set_baudrate(LINE, RATE);
}

static int line_get(void) {
  uint8_t byte;
  return uart_read_bytes(LINE, &byte, 1, portMAX_DELAY) == 1 ? byte : -1;
}

static void line_put(void *to, const uint8_t *data, size_t bytes) {
  (void)to;
  uart_write_bytes(LINE, data, bytes);
}

static uint64_t nanoseconds(int start) {
  static int64_t before;
  const int64_t now = esp_timer_get_time();
  before = start ? now : before;
  return (uint64_t)(now - before) * 1000;
}
#elif defined(__ZEPHYR__)
#include <zephyr/device.h>
#include <zephyr/drivers/uart.h>
#include <zephyr/kernel.h>
#define BOARD CONFIG_BOARD
#define CLOCK_HZ sys_clock_hw_cycles_per_sec() /* of the kernel's counter */

static const struct device *const line = DEVICE_DT_GET(DT_CHOSEN(zephyr_console)); /* or another UART */
K_MSGQ_DEFINE(heard, 1, RING_BYTES, 1);

static void on_line(const struct device *uart, void *unused) {
  uint8_t byte;
  (void)unused;
  while (uart_irq_update(uart) && uart_irq_rx_ready(uart) && uart_fifo_read(uart, &byte, 1) == 1) {
    k_msgq_put(&heard, &byte, K_NO_WAIT);
  }
}

static void line_open(void) { /* at the rate of the board's device tree */
  uart_irq_callback_user_data_set(line, on_line, NULL);
  uart_irq_rx_enable(line);
}

static int line_get(void) {
  uint8_t byte;
  return k_msgq_get(&heard, &byte, K_FOREVER) == 0 ? byte : -1;
}

static void line_put(void *to, const uint8_t *data, size_t bytes) {
  (void)to;
  for (size_t i = 0; i < bytes; i++) {
    uart_poll_out(line, data[i]);
  }
}

static uint64_t nanoseconds(int start) {
  static uint32_t before;
  const uint32_t now = k_cycle_get_32();
  before = start ? now : before;
  return k_cyc_to_ns_floor64(now - before);
}
#else /* put your board's line and timer here, and its clock: few C libraries of boards have them */
#include <stdio.h>
#include <time.h>
#define BOARD "a board"
#define CLOCK_HZ 1000000000u

static void line_open(void) {
}

static int line_get(void) {
  return getchar();
}

static void line_put(void *to, const uint8_t *data, size_t bytes) {
  (void)to;
  fwrite(data, 1, bytes, stdout);
  fflush(stdout);
}

static uint64_t nanoseconds(int start) {
  static clock_t before;
  const clock_t now = clock();
  before = start ? now : before;
  return (uint64_t)((double)(now - before) * 1e9 / CLOCKS_PER_SEC);
}
#endif

#define ALIGNED __attribute__((aligned(64)))
static uint8_t file[FILE_BYTES] ALIGNED, arena[ARENA_BYTES] ALIGNED;

static int example(void) {
  static agent device;
  int byte;
  const agent_config config = {.board = BOARD,
                               .cpu = PROCESSOR,
                               .counter = "ns",
                               .clock_hz = CLOCK_HZ,
                               .counter_hz = 1000000000u,
                               .ring_bytes = RING_BYTES,
                               .model = file,
                               .model_bytes = sizeof(file),
                               .arena = arena,
                               .arena_bytes = sizeof(arena),
                               .cycles = nanoseconds,
                               .put = line_put};
  line_open();
  agent_init(&device, &config);
  while ((byte = line_get()) >= 0) {
    agent_push(&device, (uint8_t)byte);
  }
  return 0;
}
