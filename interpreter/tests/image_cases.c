/* Frames in image_cases.h, which a test writes: nmp_image_fill against the checksums of numpy's integers. */
#include <stdio.h>

#include "memory.h"
#include "nmp_image.h"

typedef struct image_case {
  uint32_t seed, cover;
  nmp_image_frame frame;
  nmp_image_input input;
  nmp_image_filter filter;
  nmp_status status;
  uint32_t checksum;
} image_case;

#include <image_cases.h>

static uint8_t pixels[PIXELS_MAX];
static uint32_t scratch[SCRATCH_MAX];
static union {
  int16_t words[INTEGERS_MAX];
  uint8_t bytes[2 * INTEGERS_MAX];
} integers;

static uint32_t checksum(const uint8_t *bytes, size_t count) {
  uint32_t found = 2166136261u; /* FNV-1a */
  for (size_t i = 0; i < count; i++) {
    found = (found ^ bytes[i]) * 16777619u;
  }
  return found;
}

int main(void) {
  (void)tail(A, 0); /* a board starts here */
  unsigned differ = 0;
  const unsigned count = sizeof cases / sizeof cases[0];
  for (unsigned i = 0; i < count; i++) {
    const image_case *one = &cases[i];
    const nmp_image_input *input = &one->input;
    nmp_image_frame frame = one->frame;
    uint32_t state = one->seed;
    for (size_t k = 0; k < frame.bytes && k < PIXELS_MAX; k++) {
      state = state * 1664525u + 1013904223u;
      pixels[k] = (uint8_t)(state >> 24);
    }
    frame.pixels = pixels;
    const size_t bytes = (size_t)input->width * input->height * input->channels * input->bits / 8;
    nmp_status status = one->cover ? nmp_image_cover(&frame, input) : NMP_OK;
    if (status == NMP_OK) {
      const size_t elements = NMP_IMAGE_SCRATCH(frame.width, input->channels);
      const size_t there = elements < SCRATCH_MAX ? elements : SCRATCH_MAX;
      status = nmp_image_fill(&frame, input, one->filter, integers.words,
                              bytes < sizeof integers ? bytes : sizeof integers, scratch, there);
    }
    if (status != one->status || (status == NMP_OK && checksum(integers.bytes, bytes) != one->checksum)) {
      printf("case %u: status %d, checksum %08lx\n", i, (int)status, (unsigned long)checksum(integers.bytes, bytes));
      differ++;
    }
  }
  printf("%u frames, %u differ\n", count, differ);
  return differ != 0;
}
