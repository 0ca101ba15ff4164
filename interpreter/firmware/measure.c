/* Costs of one run of a bundle: prints the ticks of the board's counter, bytes of stack and of arena, the ticks of
 * each op of a second run, those of nmp_create, and the outputs.
 *
 *   make MAIN=measure.c SRC=bundle/src
 *
 * The host has put into the model's memory: bytes of the model (32 bits, then 12 more bytes), the model up to a
 * multiple of 16 bytes, the inputs one after another.
 */
#include <string.h>

#include "board.h"
#include "nmp.h"

#define ROOM 8192 /* bytes of stack that are painted */
#define PAINT 0xA5u

static void print(const char *text) {
  for (; *text; text++) {
    board_putc((uint8_t)*text);
  }
}

/* A blank and the number. */
static void print_digits(uint32_t n) {
  char digits[24], *at = digits + sizeof(digits);
  *--at = 0;
  do {
    *--at = (char)('0' + n % 10);
    n /= 10;
  } while (n > 0);
  *--at = ' ';
  print(at);
}

static void print_number(const char *name, uint32_t n) {
  print(name);
  print_digits(n);
  print("\n");
}

/* Runs work on painted stack and returns the bytes that it used. */
static __attribute__((noinline)) size_t stack_of(void (*work)(void)) {
  volatile uint8_t *top = (volatile uint8_t *)__builtin_frame_address(0) - 64;
  for (size_t i = 1; i <= ROOM; i++) {
    top[-(ptrdiff_t)i] = PAINT;
  }
  work();
  size_t used = ROOM;
  while (used > 0 && top[-(ptrdiff_t)used] == PAINT) {
    used--;
  }
  return used;
}

static agent_config board;
static nmp_net *net;
static nmp_info info;
static nmp_status status;
static uint64_t ticks;

static uint8_t *model(void) {
  return board.model + 16;
}

static uint32_t model_bytes(void) {
  return *(const uint32_t *)(const void *)board.model;
}

static void create(void) {
  status = nmp_create(&net, model(), model_bytes(), board.arena, board.arena_bytes, NULL, NULL);
}

static void run(void) {
  board_cycles(1);
  status = nmp_run(net);
  ticks = board_cycles(0);
}

static void fill_inputs(void) {
  const uint8_t *from = model() + (size_t)(model_bytes() + 15) / 16 * 16;
  nmp_view view;
  for (uint32_t i = 0; nmp_input(net, i, &view) == NMP_OK; i++) {
    memcpy(view.data, from, view.bytes);
    from += view.bytes;
  }
}

static void print_ops(void) {
  print("ops");
  for (uint32_t i = 0; i < info.ops; i++) {
    board_cycles(1);
    nmp_run_ops(net, i, i + 1);
    print_digits((uint32_t)board_cycles(0));
  }
  print("\n");
}

static void print_outputs(void) {
  static const char hex[] = "0123456789abcdef";
  nmp_view view;
  print("outputs ");
  for (uint32_t i = 0; nmp_output(net, i, &view) == NMP_OK; i++) {
    for (size_t k = 0; k < view.bytes; k++) {
      const uint8_t byte = ((const uint8_t *)view.data)[k];
      board_putc((uint8_t)hex[byte >> 4]);
      board_putc((uint8_t)hex[byte & 15]);
    }
  }
  print("\n");
}

int main(void) {
  board_init();
  board_memory(&board);
  print_number("hz", board.counter_hz);
  const size_t stack_create = stack_of(create);
  if (status == NMP_OK) {
    status = nmp_inspect(model(), model_bytes(), NULL, &info, NULL);
  }
  if (status == NMP_OK) {
    fill_inputs();
    const size_t stack_run = stack_of(run);
    print_number("ticks", (uint32_t)ticks);
    print_number("stack", stack_run);
    print_number("create", stack_create);
    print_number("arena", info.arena_bytes);
    print_outputs();
    fill_inputs();
    print_ops();
    board_cycles(1);
    create();
    print_number("start", (uint32_t)board_cycles(0));
  }
  print_number("status", (uint32_t)status);
  return 0;
}
