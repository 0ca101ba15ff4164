/* mps3-an547: Cortex-M55. */
#ifndef NMP_BOARD_CONFIG_H
#define NMP_BOARD_CONFIG_H

#define BOARD "mps3-an547"
#define CPU "Cortex-M55"
#define CLOCK_HZ 32000000u
#define UART 0x49303000u
#define RING 4096u
#define RATES 115200u, 230400u, 460800u, 1000000u
#define UART_RX_IRQ 33
#define MODEL_ADDRESS 0x60000000u
#define MODEL_BYTES 0x1000000u
#define ARENA_ADDRESS 0x21010000u
#define ARENA_BYTES 0x1F0000u

#endif
