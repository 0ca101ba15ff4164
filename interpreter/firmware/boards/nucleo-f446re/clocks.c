/* 180 MHz by the PLL from the internal oscillator, which every revision of the board has. Registers, limits and the
 * order of the steps: ST's reference manual RM0390, chapters on flash, power ("Entering Over-drive mode") and clocks.
 */
#include "clocks.h"

#include "cortex_m.h"

#define RCC_CR REG(0x40023800)
#define RCC_PLLCFGR REG(0x40023804)
#define RCC_CFGR REG(0x40023808)
#define RCC_APB1ENR REG(0x40023840)
#define PWR_CR REG(0x40007000) /* after a reset the voltage scale is 1, the highest */
#define PWR_CSR REG(0x40007004)
#define FLASH_ACR REG(0x40023C00)

#define APB1_POWER (1u << 28)
#define PLL_ON (1u << 24)
#define PLL_READY (1u << 25)
/* 16 MHz / 8 * 180 / 2; the divider by 8 is that of USB, by 2 that of sound: nobody uses them, 0 is not allowed. */
#define PLL_TO_180 (8u | 180u << 6 | 8u << 24 | 2u << 28)
#define OVER_DRIVE (1u << 16) /* in PWR_CR: on; in PWR_CSR: ready */
#define OVER_DRIVE_SWITCH (1u << 17)
#define FIVE_WAITS_AND_CACHES 0x705u /* flash above 150 MHz at 2.7 to 3.6 V; prefetch, instructions, data */
#define WAITS 0xFu
#define APB1_BY_4 (5u << 10) /* to 45 MHz, its limit */
#define APB2_BY_2 (4u << 13)
#define FROM_PLL 2u

#define START_HZ 16000000u
#define FULL_HZ 180000000u
#define PATIENCE 20000u /* readings: at least 5 ms, where the PLL takes 0.3 */

uint32_t clock_hz = START_HZ;

static int becomes(volatile uint32_t *state, uint32_t mask, uint32_t bits) {
  for (uint32_t i = 0; i < PATIENCE; i++) {
    if ((*state & mask) == bits) {
      return 1;
    }
  }
  return 0;
}

static int is_ready(volatile uint32_t *state, uint32_t bits) {
  return becomes(state, bits, bits);
}

static int full_power(void) {
  PWR_CR |= OVER_DRIVE;
  if (!is_ready(&PWR_CSR, OVER_DRIVE)) {
    return 0;
  }
  PWR_CR |= OVER_DRIVE_SWITCH;
  return is_ready(&PWR_CSR, OVER_DRIVE_SWITCH);
}

void clocks_init(void) {
  RCC_APB1ENR |= APB1_POWER;
  (void)RCC_APB1ENR; /* a clock takes two cycles to come on */
  RCC_PLLCFGR = PLL_TO_180;
  RCC_CR |= PLL_ON;
  if (!full_power() || !is_ready(&RCC_CR, PLL_READY)) {
    return;
  }
  FLASH_ACR = FIVE_WAITS_AND_CACHES;
  if (!becomes(&FLASH_ACR, WAITS, FIVE_WAITS_AND_CACHES & WAITS)) {
    return;
  }
  RCC_CFGR |= APB1_BY_4 | APB2_BY_2;
  RCC_CFGR |= FROM_PLL;
  if (!becomes(&RCC_CFGR, FROM_PLL << 2, FROM_PLL << 2)) {
    RCC_CFGR &= ~(APB1_BY_4 | APB2_BY_2 | FROM_PLL);
    return;
  }
  clock_hz = FULL_HZ;
}

uint32_t clocks_apb1_hz(void) {
  return clock_hz == FULL_HZ ? FULL_HZ / 4 : START_HZ;
}
