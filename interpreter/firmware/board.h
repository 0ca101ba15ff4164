/* A board: five functions and a linker script. PORTING.md tells how to write one. */
#ifndef NMP_BOARD_H
#define NMP_BOARD_H

#include "agent.h"

void board_init(void);

/* The next byte from the host; waits for it, asleep where the processor can. -1: the line is closed for good. */
int board_getc(void);
void board_putc(uint8_t byte);

/* start: from now on ticks are counted. Otherwise: the ticks since then. In between a host sends nothing but repeated
 * requests, so that a board may, and for equal counts should, be deaf. What is counted is told by board_memory. */
uint64_t board_cycles(int start);

/* Fills in the facts and the memory, and set_rate where the line has rates, but not the other functions. */
void board_memory(agent_config *config);

#endif
