/* Nordic nRF52840-DK: Cortex-M4 at 64 MHz; UART0 is the J-Link's virtual port. */
#ifndef NMP_BOARD_CONFIG_H
#define NMP_BOARD_CONFIG_H

#define BOARD "nrf52840-dk"
#define CPU "Cortex-M4"
#define CLOCK_HZ 64000000u
#define UART 0x40002000u
#define RING 4096u
#define RATES 115200u, 230400u, 1000000u
#define UART_RX_IRQ 2
#define MODEL_ADDRESS 0x20004000u
#define MODEL_BYTES 0x1C000u
#define ARENA_ADDRESS 0x20020000u
#define ARENA_BYTES 0x20000u

#endif
