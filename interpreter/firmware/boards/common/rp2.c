/* UART0 of Raspberry Pi's RP2040 and RP2350 on pins GP0 and GP1, and their clocks. Registers: the chips' data sheets,
 * sections on resets, XOSC, PLL, clocks, GPIO and UART (Arm's PL011). config.h has what differs. */
#include "board.h"
#include "cortex_m.h"

#define CLEAR_BITS 0x3000u /* on top of a register's address: clears the bits that are written */
#define RESETS_CLEAR REG(RESETS + CLEAR_BITS)
#define RESETS_DONE REG(RESETS + 0x08)
#define XOSC_CTRL REG(XOSC + 0x00)
#define XOSC_STATUS REG(XOSC + 0x04)
#define XOSC_STARTUP REG(XOSC + 0x0C)
#define PLL_CS REG(PLL_SYS + 0x00)
#define PLL_POWER_CLEAR REG(PLL_SYS + CLEAR_BITS + 0x04)
#define PLL_FBDIV REG(PLL_SYS + 0x08)
#define PLL_PRIM REG(PLL_SYS + 0x0C)
#define CLOCK_REF_CTRL REG(CLOCKS + 0x30)
#define CLOCK_REF_SELECTED REG(CLOCKS + 0x38)
#define CLOCK_SYS_CTRL REG(CLOCKS + 0x3C)
#define CLOCK_SYS_SELECTED REG(CLOCKS + 0x44)
#define CLOCK_PERI_CTRL REG(CLOCKS + 0x48)
#define GPIO0_CTRL REG(IO_BANK0 + 0x04)
#define GPIO1_CTRL REG(IO_BANK0 + 0x0C)
#define PAD0 REG(PADS_BANK0 + 0x04)
#define PAD1 REG(PADS_BANK0 + 0x08)
#define UART_DR REG(UART + 0x00)
#define UART_FR REG(UART + 0x18)
#define UART_IBRD REG(UART + 0x24)
#define UART_FBRD REG(UART + 0x28)
#define UART_LCR_H REG(UART + 0x2C)
#define UART_CR REG(UART + 0x30)
#define UART_IFLS REG(UART + 0x34)
#define UART_IMSC REG(UART + 0x38)

#define USED (1u << RESET_IO_BANK0 | 1u << RESET_PADS_BANK0 | 1u << RESET_PLL_SYS | 1u << RESET_UART0)
#define XOSC_ON 0xFABAA0u /* for crystals of 1 to 15 MHz */
#define XOSC_DELAY 94u    /* times 256 periods of 12 MHz: 2 ms */
#define READY (1u << 31)  /* the crystal is stable, the PLL locked */
#define PLL_MAIN 0x21u    /* power of PLL and oscillator; then that of its dividers */
#define PLL_DIVIDERS 0x08u
#define FROM_XOSC 2u /* of the reference clock */
#define FROM_PLL 1u  /* of the system clock */
#define PERI_ON (1u << 11)
#define FUNCTION_UART 2u
#define PAD_OUTPUT 0x56u /* input on, 4 mA, pulled down */
#define PAD_INPUT 0x5Au  /* input on, pulled up: a line that nobody drives is quiet */
#define FR_BUSY 0x08u
#define FR_NONE 0x10u
#define FR_FULL 0x20u
#define LCR_8N1 0x70u /* 8 bits, with queues */
#define CR_ON 0x301u
#define RECEIVED 0x50u /* an eighth of the queue, or some bytes and then a pause */

/* The PLL's 1500 MHz by two dividers; from 12 MHz, which the crystal of the board has. */
static void clocks_init(void) {
  XOSC_STARTUP = XOSC_DELAY;
  XOSC_CTRL = XOSC_ON;
  while (!(XOSC_STATUS & READY)) {
  }
  CLOCK_REF_CTRL = FROM_XOSC;
  while (CLOCK_REF_SELECTED != 1u << FROM_XOSC) {
  }
  CLOCK_SYS_CTRL = 0;
  while (CLOCK_SYS_SELECTED != 1u) {
  }
  RESETS_CLEAR = USED;
  while ((RESETS_DONE & USED) != USED) {
  }
  PLL_CS = 1u;
  PLL_FBDIV = 125u;
  PLL_POWER_CLEAR = PLL_MAIN;
  while (!(PLL_CS & READY)) {
  }
  PLL_PRIM = PLL_DIVIDER_1 << 16 | PLL_DIVIDER_2 << 12;
  PLL_POWER_CLEAR = PLL_DIVIDERS;
  CLOCK_SYS_CTRL = FROM_PLL;
  while (CLOCK_SYS_SELECTED != 1u << FROM_PLL) {
  }
  CLOCK_PERI_CTRL = PERI_ON;
}

/* In 64ths of 16 clocks. What is written to LCR_H has the new rate taken. */
static void set_divisor(uint32_t rate) {
  uint32_t divisor = (4u * CLOCK_HZ + rate / 2) / rate;
  UART_IBRD = divisor / 64u;
  UART_FBRD = divisor % 64u;
  UART_LCR_H = LCR_8N1;
}

void uart_init(uint32_t rate) {
  clocks_init();
  PAD0 = PAD_OUTPUT;
  PAD1 = PAD_INPUT;
  GPIO0_CTRL = FUNCTION_UART;
  GPIO1_CTRL = FUNCTION_UART;
  set_divisor(rate);
  UART_IFLS = 0;
  UART_IMSC = RECEIVED;
  UART_CR = CR_ON;
}

void uart_set_rate(uint32_t rate) {
  while (UART_FR & FR_BUSY) {
  }
  UART_CR = 0;
  set_divisor(rate);
  UART_CR = CR_ON;
}

/* Both interrupts end with the queue empty. */
void uart_handler(void) {
  while (!(UART_FR & FR_NONE)) {
    ring_put((uint8_t)UART_DR);
  }
}

void board_putc(uint8_t byte) {
  while (UART_FR & FR_FULL) {
  }
  UART_DR = byte;
}
