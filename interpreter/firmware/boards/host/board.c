/* The agent as a program on this machine, over stdin and stdout. With NMP_AGENT_MEMORY=FILE the model's memory is that
 * file, so that it survives the program as RAM survives a reset. With NMP_AGENT_RATE=FILE the line has rates, and the
 * one that is set is written there; what carries the bytes may garble those of another rate. */
#define _POSIX_C_SOURCE 200809L
#include "board.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MODEL_BYTES ((size_t)16 << 20)
#define ARENA_BYTES ((size_t)4 << 20)
#define ALIGNMENT 64

static uint8_t *model, *arena;
static const uint32_t rates[] = {115200, 230400, 460800, 1000000};
static int rate_file = -1;

static uint8_t *memory(size_t bytes, const char *path) {
  if (path != NULL) {
    int file = open(path, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, (off_t)bytes) != 0) {
      _exit(1);
    }
    void *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return mapped == MAP_FAILED ? NULL : mapped;
  }
  void *made = NULL;
  return posix_memalign(&made, ALIGNMENT, bytes) == 0 ? made : NULL;
}

static void set_rate(uint32_t rate) {
  if (pwrite(rate_file, &rate, sizeof(rate), 0) != (ssize_t)sizeof(rate)) {
    _exit(1);
  }
}

void board_init(void) {
  const char *path = getenv("NMP_AGENT_RATE");
  if (path != NULL) {
    rate_file = open(path, O_RDWR | O_CREAT, 0600);
    set_rate(rates[0]);
  }
  model = memory(MODEL_BYTES, getenv("NMP_AGENT_MEMORY"));
  arena = memory(ARENA_BYTES, NULL);
  if (model == NULL || arena == NULL) {
    _exit(1);
  }
}

int board_getc(void) {
  static uint8_t buffer[4096];
  static ssize_t used, at;
  if (at == used) {
    used = read(STDIN_FILENO, buffer, sizeof(buffer));
    at = 0;
    if (used <= 0) {
      return -1;
    }
  }
  return buffer[at++];
}

/* Frames, which a zero begins and ends, and lines leave at once. */
void board_putc(uint8_t byte) {
  static uint8_t buffer[512];
  static size_t used;
  buffer[used++] = byte;
  if (used == sizeof(buffer) || byte == '\n' || (byte == 0 && used > 1)) {
    if (write(STDOUT_FILENO, buffer, used) != (ssize_t)used) {
      _exit(0);
    }
    used = 0;
  }
}

uint64_t board_cycles(int start) {
  static uint64_t before;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  uint64_t ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
  before = start ? ns : before;
  return ns - before;
}

void board_memory(agent_config *config) {
  config->board = "host";
  config->cpu = "this machine";
  config->counter = "ns";
  config->clock_hz = 1000000000u;
  config->counter_hz = 1000000000u;
  config->ring_bytes = 4096;
  config->model = model;
  config->model_bytes = MODEL_BYTES;
  config->arena = arena;
  config->arena_bytes = ARENA_BYTES;
  config->rates = rates;
  config->rate_count = rate_file < 0 ? 0 : sizeof(rates) / sizeof(rates[0]);
  config->set_rate = set_rate;
}
