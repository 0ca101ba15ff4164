/* Functions that the compiler calls to multiply 64 bits and to divide: its library lacks them, as an ESP8266 has them
 * in ROM. */
#include <stddef.h>
#include <stdint.h>

uint64_t __umulsidi3(uint32_t a, uint32_t b);
int64_t __muldi3(int64_t a, int64_t b);
uint32_t __udivsi3(uint32_t a, uint32_t b);
uint32_t __umodsi3(uint32_t a, uint32_t b);
int32_t __divsi3(int32_t a, int32_t b);
uint64_t __udivmoddi4(uint64_t a, uint64_t b, uint64_t *rest);
uint64_t __udivdi3(uint64_t a, uint64_t b);
uint64_t __umoddi3(uint64_t a, uint64_t b);
int64_t __divdi3(int64_t a, int64_t b);

uint64_t __umulsidi3(uint32_t a, uint32_t b) {
  const uint32_t a0 = a & 0xFFFFu, a1 = a >> 16, b0 = b & 0xFFFFu, b1 = b >> 16;
  const uint32_t low = a0 * b0, one = a1 * b0 + (low >> 16), other = a0 * b1 + (one & 0xFFFFu);
  return (uint64_t)(a1 * b1 + (one >> 16) + (other >> 16)) << 32 | (other << 16 | (low & 0xFFFFu));
}

int64_t __muldi3(int64_t a, int64_t b) {
  const uint32_t a0 = (uint32_t)a, b0 = (uint32_t)b, a1 = (uint32_t)((uint64_t)a >> 32),
                 b1 = (uint32_t)((uint64_t)b >> 32);
  const uint64_t low = __umulsidi3(a0, b0);
  return (int64_t)((uint64_t)((uint32_t)(low >> 32) + a0 * b1 + a1 * b0) << 32 | (uint32_t)low);
}

/* The quotient's bits, the highest first; b is not 0. */
static uint32_t divide(uint32_t a, uint32_t b, uint32_t *rest) {
  uint32_t quotient = 0;
  if (a >= b) {
    for (int shift = __builtin_clz(b) - __builtin_clz(a); shift >= 0; shift--) {
      quotient <<= 1;
      if (a >= b << shift) {
        a -= b << shift;
        quotient |= 1;
      }
    }
  }
  *rest = a;
  return quotient;
}

uint32_t __udivsi3(uint32_t a, uint32_t b) {
  return divide(a, b, &a);
}

uint32_t __umodsi3(uint32_t a, uint32_t b) {
  divide(a, b, &a);
  return a;
}

int32_t __divsi3(int32_t a, int32_t b) {
  const uint32_t part = __udivsi3(a < 0 ? 0u - (uint32_t)a : (uint32_t)a, b < 0 ? 0u - (uint32_t)b : (uint32_t)b);
  return (int32_t)((a < 0) != (b < 0) ? 0u - part : part);
}

uint64_t __udivdi3(uint64_t a, uint64_t b) {
  return __udivmoddi4(a, b, NULL);
}

uint64_t __umoddi3(uint64_t a, uint64_t b) {
  uint64_t rest;
  __udivmoddi4(a, b, &rest);
  return rest;
}

int64_t __divdi3(int64_t a, int64_t b) {
  const uint64_t part = __udivdi3(a < 0 ? 0u - (uint64_t)a : (uint64_t)a, b < 0 ? 0u - (uint64_t)b : (uint64_t)b);
  return (int64_t)((a < 0) != (b < 0) ? 0u - part : part);
}
