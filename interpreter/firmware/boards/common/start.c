/* Start-up after reset_handler, which has set up the stack, on boards whose memory holds the program already. */
#include <stdint.h>

extern uint32_t __bss_start[], __bss_end[];
int main(void);
void start(void);

void start(void) {
  for (uint32_t *to = __bss_start; to < __bss_end;) {
    *to++ = 0;
  }
  main();
  for (;;) {
  }
}
