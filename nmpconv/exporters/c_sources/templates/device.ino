/* Is the device of `nmpconv bench FILE --device PORT`: takes files that have the ops of this bundle, runs them, and
 * answers with outputs and times.
 */
#include "@HEADER@"
extern "C" {
#include "agent/agent.h"
}

#define FILE_BYTES @FILE@ /* RAM for a file, its inputs and 8 bytes an op: as much as you have */
#define ARENA_BYTES @ARENA@ /* RAM of a run */
#define LINE Serial /* any Stream; setup() opens it */
#define RATE 115200

#ifndef F_CPU
#define F_CPU 1000000UL /* this core does not tell: write your processor's clock here */
#endif
#ifndef SERIAL_RX_BUFFER_SIZE
#define SERIAL_RX_BUFFER_SIZE 64
#endif
#ifndef ARDUINO_BOARD
#define ARDUINO_BOARD "Arduino"
#endif

@PROCESSOR@
static uint8_t file[FILE_BYTES] __attribute__((aligned(64)));
static uint8_t arena[ARENA_BYTES] __attribute__((aligned(64)));
static agent device;

static void line_put(void *, const uint8_t *data, size_t bytes) {
  LINE.write(data, bytes);
}

static uint64_t nanoseconds(int start) {
  static uint32_t before;
  const uint32_t now = micros();
  before = start ? now : before;
  return (uint64_t)(uint32_t)(now - before) * 1000;
}

void setup() {
  static agent_config config; /* other fields are 0 */
  config.board = ARDUINO_BOARD;
  config.cpu = PROCESSOR;
  config.counter = "ns";
  config.clock_hz = F_CPU;
  config.counter_hz = 1000000000;
  config.ring_bytes = SERIAL_RX_BUFFER_SIZE;
  config.model = file;
  config.model_bytes = sizeof(file);
  config.arena = arena;
  config.arena_bytes = sizeof(arena);
  config.cycles = nanoseconds;
  config.put = line_put;
  agent_init(&device, &config);
  LINE.begin(RATE);
}

void loop() {
  while (LINE.available() > 0) {
    agent_push(&device, (uint8_t)LINE.read());
  }
}
