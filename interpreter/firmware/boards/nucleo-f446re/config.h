/* ST Nucleo-F446RE: Cortex-M4 at 180 MHz; USART2 is the ST-Link's virtual port. */
#ifndef NMP_BOARD_CONFIG_H
#define NMP_BOARD_CONFIG_H

#include "clocks.h"

#define BOARD "nucleo-f446re"
#define CPU "Cortex-M4"
#define CLOCK_HZ clock_hz
#define UART 0x40004400u
#define RING 4096u
#define RATES 115200u, 230400u, 460800u, 1000000u
#define UART_RX_IRQ 38
#define MODEL_ADDRESS 0x20004000u
#define MODEL_BYTES 0xD000u
#define ARENA_ADDRESS 0x20011000u
#define ARENA_BYTES 0xF000u

#endif
