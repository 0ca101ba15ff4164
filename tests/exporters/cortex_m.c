/* The vector table of a Cortex-M whose C library prints and exits by semihosting. STACK is given by the compiler. */
extern void _start(void);
__attribute__((section(".vectors"), used)) static const struct {
  unsigned stack;
  void (*reset)(void);
} vectors = {STACK, _start};
