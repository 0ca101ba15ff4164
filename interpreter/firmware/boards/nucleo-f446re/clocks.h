/* The clocks of an STM32F446. */
#ifndef NMP_NUCLEO_CLOCKS_H
#define NMP_NUCLEO_CLOCKS_H

#include <stdint.h>

extern uint32_t clock_hz; /* of the processor */

/* From the 16 MHz of the start to 180 MHz. Where the PLL or the over-drive mode does not get ready, as in a simulator
 * without them, the clock stays. Before any other peripheral has its clock.
 */
void clocks_init(void);

/* Frequency of the bus that USART2 is on. */
uint32_t clocks_apb1_hz(void);

#endif
