#include "patch.h"

#include <string.h>

#include "rvv.h"

/* A few bytes: with vectors they take fewer instructions than a call. */
static inline void copy(uint8_t *to, const uint8_t *from, size_t bytes) {
#ifdef NMP_RVV
  for (size_t vl; bytes > 0; bytes -= vl, to += vl, from += vl) {
    vl = __riscv_vsetvl_e8m8(bytes);
    __riscv_vse8_v_u8m8(to, __riscv_vle8_v_u8m8(from, vl), vl);
  }
#else
  memcpy(to, from, bytes);
#endif
}

nmp_place nmp_locate(const nmp_conv *c, size_t pixel) {
  const size_t width = (size_t)c->h.out, plane = (size_t)c->v.out * width;
  const size_t image = pixel / plane, rest = pixel % plane;
  return (nmp_place){(int32_t)(rest / width), (int32_t)(rest % width),
                     image * (size_t)c->v.in * (size_t)c->h.in * c->in};
}

/* Neighbouring taps are copied in one go. */
void nmp_gather(const nmp_conv *c, nmp_place at, size_t group, uint8_t *patch) {
  const size_t per_group = c->in / c->groups, first = group * per_group, tap = per_group << nmp_x_wide(c);
  for (int32_t ky = 0; ky < c->v.kernel; ky++) {
    const int32_t iy = nmp_pixel(&c->v, at.y, ky);
    int32_t run;
    for (int32_t kx = 0; kx < c->h.kernel; kx += run, patch += (size_t)run * tap) {
      const int32_t ix = nmp_pixel(&c->h, at.x, kx);
      run = 1;
      if (nmp_inside(&c->v, iy) && nmp_inside(&c->h, ix)) {
        if (c->h.dilation == 1 && c->groups == 1) {
          run = c->h.kernel - kx < c->h.in - ix ? c->h.kernel - kx : c->h.in - ix;
        }
        copy(patch, nmp_element(c, at, iy, ix, first), (size_t)run * tap);
      } else if (c->pad) {
        copy(patch, nmp_padding(c, first), tap);
      } else {
        memset(patch, 0, tap);
      }
    }
  }
}
