/* mps2-an505: Cortex-M33, all of it in the secure state, in which it starts. */
#ifndef NMP_BOARD_CONFIG_H
#define NMP_BOARD_CONFIG_H

#define BOARD "mps2-an505"
#define CPU "Cortex-M33"
#define CLOCK_HZ 20000000u
#define UART 0x50200000u
#define RING 4096u
#define RATES 115200u, 230400u, 460800u, 1000000u
#define UART_RX_IRQ 32
#define MODEL_ADDRESS 0x80000000u
#define MODEL_BYTES 0x1000000u
#define ARENA_ADDRESS 0x38010000u
#define ARENA_BYTES 0x3F0000u

#endif
