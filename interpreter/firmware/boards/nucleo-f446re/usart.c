/* USART2 of an STM32F4 on pins PA2 and PA3. Registers: ST's reference manual RM0390. */
#include "board.h"
#include "clocks.h"
#include "cortex_m.h"

#define RCC_AHB1ENR REG(0x40023830) /* bit 0: GPIOA */
#define RCC_APB1ENR REG(0x40023840) /* bit 17: USART2 */
#define GPIOA_MODER REG(0x40020000) /* 2 bits a pin, 2: alternate function */
#define GPIOA_AFRL REG(0x40020020)  /* 4 bits a pin, 7: USART2 */
#define USART_SR REG(UART + 0x00)
#define USART_DR REG(UART + 0x04)
#define USART_BRR REG(UART + 0x08)
#define USART_CR1 REG(UART + 0x0C)

#define SR_OVERRUN 0x08u
#define SR_RECEIVED 0x20u
#define SR_SENT 0x40u
#define SR_EMPTY 0x80u
#define CR1_ON 0x202Cu /* enable, interrupt on receive, send, receive */

static uint32_t divisor(uint32_t rate) {
  return (clocks_apb1_hz() + rate / 2) / rate;
}

void uart_init(uint32_t rate) {
  clocks_init();
  RCC_AHB1ENR |= 1u;
  RCC_APB1ENR |= 1u << 17;
  (void)RCC_APB1ENR; /* a clock takes two cycles to come on */
  GPIOA_MODER = (GPIOA_MODER & ~0xF0u) | 0xA0u;
  GPIOA_AFRL = (GPIOA_AFRL & ~0xFF00u) | 0x7700u;
  USART_BRR = divisor(rate);
  USART_CR1 = CR1_ON;
}

void uart_set_rate(uint32_t rate) {
  while (!(USART_SR & SR_SENT)) {
  }
  USART_BRR = divisor(rate);
}

/* Reading the state, then the data, also ends an overrun. */
void uart_handler(void) {
  while (USART_SR & (SR_RECEIVED | SR_OVERRUN)) {
    ring_put((uint8_t)USART_DR);
  }
}

void board_putc(uint8_t byte) {
  while (!(USART_SR & SR_EMPTY)) {
  }
  USART_DR = byte;
}
