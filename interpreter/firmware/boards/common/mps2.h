/* The machines mps2 of Arm's FPGA board, but for where the model lies. */
#ifndef NMP_BOARD_MPS2_H
#define NMP_BOARD_MPS2_H

#define CLOCK_HZ 25000000u
#define UART 0x40004000u
#define RING 4096u
#define RATES 115200u, 230400u, 460800u, 921600u
#define UART_RX_IRQ 0
#define MODEL_BYTES 0x1000000u
#define ARENA_ADDRESS 0x20010000u
#define ARENA_BYTES 0x3F0000u

#endif
