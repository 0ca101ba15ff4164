#include "conv/patch.h"

#include <string.h>

nmp_place nmp_locate(const nmp_conv *c, size_t pixel) {
  const size_t width = (size_t)c->h.out, plane = (size_t)c->v.out * width;
  const size_t image = pixel / plane, rest = pixel % plane;
  return (nmp_place){(int32_t)(rest / width), (int32_t)(rest % width),
                     image * (size_t)c->v.in * (size_t)c->h.in * c->in};
}

/* Copies what is there behind itself, twice as much each time. */
void nmp_repeat(uint8_t *place, size_t bytes, size_t times) {
  for (size_t done = 1, n; done < times; done += n) {
    n = done < times - done ? done : times - done;
    memcpy(place + done * bytes, place, n * bytes);
  }
}

#define GATHER nmp_gather
#define COPY(to, from, bytes) memcpy(to, from, bytes)
#include "conv/patch.inc"
