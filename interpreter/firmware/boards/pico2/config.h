/* Raspberry Pi Pico 2: RP2350, of its two Cortex-M33 one, at 150 MHz; UART0 on GP0 and GP1, all in RAM. */
#ifndef NMP_BOARD_CONFIG_H
#define NMP_BOARD_CONFIG_H

#include "rp2.h"

#define BOARD "pico2"
#define CPU "Cortex-M33"
#define CLOCK_HZ 150000000u
#define CLOCKS 0x40010000u
#define RESETS 0x40020000u
#define IO_BANK0 0x40028000u
#define PADS_BANK0 0x40038000u
#define XOSC 0x40048000u
#define PLL_SYS 0x40050000u
#define UART 0x40070000u
#define RESET_IO_BANK0 6
#define RESET_PADS_BANK0 9
#define RESET_PLL_SYS 14
#define RESET_UART0 26
#define PLL_DIVIDER_1 5u
#define PLL_DIVIDER_2 2u
#define RING 2048u
#define RATES 115200u, 230400u, 460800u, 1000000u
#define UART_RX_IRQ 33
#define RAM_END 0x20080000u /* but for data and stack */

#endif
