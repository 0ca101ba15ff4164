/* mps2-an385-m0plus: the machine of mps2-an385 with the instructions of a Cortex-M0+ alone. */
#ifndef NMP_BOARD_CONFIG_H
#define NMP_BOARD_CONFIG_H

#define BOARD "mps2-an385-m0plus"
#define CPU "Cortex-M0+"
#define CLOCK_HZ 25000000u
#define UART 0x40004000u
#define RING 4096u
#define UART_RX_IRQ 0
#define MODEL_ADDRESS 0x21000000u
#define MODEL_BYTES 0x1000000u
#define ARENA_ADDRESS 0x20010000u
#define ARENA_BYTES 0x3F0000u

#endif
