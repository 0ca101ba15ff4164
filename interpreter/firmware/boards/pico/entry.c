/* A program in the RAM of an RP2040. The boot ROM jumps to its first instruction, and has taken no vectors from it; see
 * the data sheet's section on UF2 files and the published source of the boot ROM. */
#include "cortex_m.h"

#define VTOR REG(0xE000ED08)

extern const uint32_t __vectors[];

void enter(void);

__attribute__((section(".boot"), used)) void enter(void) {
  VTOR = (uint32_t)(uintptr_t)__vectors;
  __asm volatile("msr msp, %0\n bx %1" ::"r"(__vectors[0]), "r"(__vectors[1]));
}
