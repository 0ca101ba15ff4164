/* Raspberry Pi Pico: RP2040, of its two Cortex-M0+ one, at 125 MHz; UART0 on GP0 and GP1, all in RAM. */
#ifndef NMP_BOARD_CONFIG_H
#define NMP_BOARD_CONFIG_H

#include "rp2.h"

#define BOARD "pico"
#define CPU "Cortex-M0+"
#define CLOCK_HZ 125000000u
#define CLOCKS 0x40008000u
#define RESETS 0x4000C000u
#define IO_BANK0 0x40014000u
#define PADS_BANK0 0x4001C000u
#define XOSC 0x40024000u
#define PLL_SYS 0x40028000u
#define UART 0x40034000u
#define RESET_IO_BANK0 5
#define RESET_PADS_BANK0 8
#define RESET_PLL_SYS 12
#define RESET_UART0 22
#define PLL_DIVIDER_1 6u
#define PLL_DIVIDER_2 2u
#define RING 2048u
#define RATES 115200u, 230400u, 460800u, 1000000u
#define UART_RX_IRQ 20
#define RAM_END 0x20040000u /* but for data and stack */

#endif
