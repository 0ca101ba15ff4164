/* The functions of string.h, since there is no C library. Loops are not to become calls of themselves. */
#include <stdint.h>
#include <string.h>
#include <wasm_simd128.h>

#define OWN __attribute__((no_builtin))

OWN void *memcpy(void *restrict to, const void *restrict from, size_t bytes) {
  uint8_t *t = to;
  const uint8_t *f = from;
  for (; bytes >= 16; bytes -= 16, t += 16, f += 16) {
    wasm_v128_store(t, wasm_v128_load(f));
  }
  if (bytes & 8) {
    wasm_v128_store64_lane(t, wasm_v128_load64_zero(f), 0);
    t += 8, f += 8;
  }
  for (size_t i = 0; i < (bytes & 7); i++) {
    t[i] = f[i];
  }
  return to;
}

OWN void *memmove(void *to, const void *from, size_t bytes) {
  uint8_t *t = to;
  const uint8_t *f = from;
  if ((uintptr_t)t - (uintptr_t)f >= bytes) {
    return memcpy(to, from, bytes);
  }
  for (size_t i = bytes; i > 0; i--) {
    t[i - 1] = f[i - 1];
  }
  return to;
}

OWN void *memset(void *to, int byte, size_t bytes) {
  uint8_t *t = to;
  const v128_t all = wasm_i8x16_splat((int8_t)byte);
  for (; bytes >= 16; bytes -= 16, t += 16) {
    wasm_v128_store(t, all);
  }
  for (size_t i = 0; i < bytes; i++) {
    t[i] = (uint8_t)byte;
  }
  return to;
}

OWN int memcmp(const void *a, const void *b, size_t bytes) {
  const uint8_t *p = a, *q = b;
  for (size_t i = 0; i < bytes; i++) {
    if (p[i] != q[i]) {
      return p[i] < q[i] ? -1 : 1;
    }
  }
  return 0;
}

OWN size_t strlen(const char *text) {
  size_t n = 0;
  while (text[n]) {
    n++;
  }
  return n;
}
