#if __STDC_HOSTED__
#define _DEFAULT_SOURCE
#endif
#include "memory.h"

#include <stdio.h>
#include <stdlib.h>

#if !__STDC_HOSTED__

#include "board.h"

#define PAGE 4096u
#define SLOTS_APART (SLOT + 2 * PAGE)

#if defined(__ARM_ARCH_PROFILE)
#define REG(address) (*(volatile uint32_t *)(uintptr_t)(address))
#endif

#if defined(__ARM_ARCH_PROFILE) && __ARM_ARCH >= 8
static void region(uint32_t number, const uint8_t *first, uint32_t bytes) {
  REG(0xE000ED98) = number;
  REG(0xE000ED9C) = (uint32_t)(uintptr_t)first | 3u; /* to read and to write, not to execute */
  REG(0xE000EDA0) = (((uint32_t)(uintptr_t)first + bytes - 1) & ~31u) | 1u;
}

/* Guard of Armv8-M, which can forbid nothing to everyone, but makes it a fault to touch what lies in two regions. */
static void guard(uint32_t slot, const uint8_t *page) {
  const uint8_t *start = page - SLOT - slot * SLOTS_APART;
  REG(0xE000EDC0) = 0xFFu; /* normal memory */
  region(0, start, SLOTS * SLOTS_APART);
  region(slot + 1, page, PAGE);
  REG(0xE000ED94) = 5u; /* on, with the default map behind it */
  __asm volatile("dsb\n isb");
}
#elif defined(__ARM_ARCH_PROFILE)
/* The memory protection unit of Armv7-M: a page that nobody may access; everything else stays as it is. */
static void guard(uint32_t region, const uint8_t *page) {
  REG(0xE000ED98) = region;
  REG(0xE000ED9C) = (uint32_t)(uintptr_t)page;
  REG(0xE000EDA0) = 11u << 1 | 1u; /* 2^12 bytes, no access, enabled */
  REG(0xE000ED94) = 5u;            /* on, with the default map behind it */
  __asm volatile("dsb\n isb");
}
#elif defined(__riscv)
#define PMP_ADDRESS(n)                                      \
  case n:                                                   \
    __asm volatile("csrw pmpaddr" #n ", %0" : : "r"(page)); \
    break;

/* Physical memory protection: a page of no rights, locked, which binds machine mode, too. */
static void guard(uint32_t slot, const uint8_t *first) {
  const uint32_t page = (uint32_t)(uintptr_t)first >> 2 | (PAGE / 8 - 1), locked = 0x98u << slot % 4 * 8;
  switch (slot) {
    PMP_ADDRESS(0)
    PMP_ADDRESS(1)
    PMP_ADDRESS(2)
    PMP_ADDRESS(3)
    PMP_ADDRESS(4)
    PMP_ADDRESS(5)
    PMP_ADDRESS(6)
    PMP_ADDRESS(7)
  }
  if (slot < 4) {
    __asm volatile("csrs pmpcfg0, %0" : : "r"(locked));
  } else {
    __asm volatile("csrs pmpcfg1, %0" : : "r"(locked));
  }
}
#else
/* An Xtensa lx106 protects no less than 512 MB: reads beyond an end are found on the other boards. */
static void guard(uint32_t slot, const uint8_t *page) {
  (void)slot;
  (void)page;
}
#endif

void *tail(int slot, size_t bytes) {
  static uint8_t *start;
  if (start == NULL) {
    agent_config memory;
    board_init();
    board_memory(&memory);
    start = memory.model + PAGE - (uintptr_t)memory.model % PAGE;
    for (uint32_t i = 0; i < GUARDED; i++) {
      guard(i, start + i * SLOTS_APART + SLOT);
    }
  }
  return start + (size_t)slot * SLOTS_APART + SLOT - bytes;
}

/* The C library's way out: newlib's, picolibc's. */
#ifdef __PICOLIBC__
static int put(char byte, FILE *file) {
  (void)file;
  board_putc((uint8_t)byte);
  return 0;
}

static FILE out = FDEV_SETUP_STREAM(put, NULL, NULL, _FDEV_SETUP_WRITE);
FILE *const stdout = &out, *const stderr = &out;
#else
int _write(int file, const char *data, int bytes);
int _write(int file, const char *data, int bytes) {
  (void)file;
  for (int i = 0; i < bytes; i++) {
    board_putc((uint8_t)data[i]);
  }
  return bytes;
}
#endif

#elif defined(__wasm__)

#include <stdint.h>

/* All memory can be accessed there. What lies behind a slot are bytes that are not those of an input. */
void *tail(int slot, size_t bytes) {
  static uint8_t *slots[SLOTS];
  if (slots[slot] == NULL) {
    slots[slot] = malloc(SLOT + MARGIN);
    if (slots[slot] == NULL) {
      perror("malloc");
      exit(2);
    }
    for (size_t i = 0; i < MARGIN; i++) {
      slots[slot][SLOT + i] = (uint8_t)(0x5A + slot);
    }
  }
  return slots[slot] + SLOT - bytes;
}

#else

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

void *tail(int slot, size_t bytes) {
  static uint8_t *slots[SLOTS];
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  if (bytes > SLOT) {
    fprintf(stderr, "a buffer of %zu bytes: a slot has %d\n", bytes, SLOT);
    exit(2);
  }
  if (slots[slot] == NULL) {
    uint8_t *map = mmap(NULL, SLOT + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED || mprotect(map + SLOT, page, PROT_NONE) != 0) {
      perror("mmap");
      exit(2);
    }
    slots[slot] = map;
  }
  return slots[slot] + SLOT - bytes;
}

#endif
