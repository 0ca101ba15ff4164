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

/* Number of calls with something missing that are not refused. */
static unsigned mistakes(void) {
  const nmp_image_input input = {2, 2, 1, 0, 8, 0, -128, 127, {1, 1, 1}, {0, 0, 0}};
  const nmp_image_frame good = {pixels, 4, 2, NMP_IMAGE_GRAY, 0, 0, 2, 2};
  nmp_image_frame none = good, flat = good, narrow = good;
  none.pixels = NULL;
  flat.height = narrow.width = 0;
  int8_t *to = (int8_t *)integers.bytes;
  const nmp_image_filter filter = NMP_IMAGE_BILINEAR;
  const nmp_status found[] = {nmp_image_fill(NULL, &input, filter, to, 4, scratch, SCRATCH_MAX),
                              nmp_image_fill(&none, &input, filter, to, 4, scratch, SCRATCH_MAX),
                              nmp_image_fill(&good, NULL, filter, to, 4, scratch, SCRATCH_MAX),
                              nmp_image_fill(&good, &input, filter, NULL, 4, scratch, SCRATCH_MAX),
                              nmp_image_fill(&good, &input, filter, to, 4, NULL, SCRATCH_MAX),
                              nmp_image_cover(NULL, &input),
                              nmp_image_cover(&flat, NULL),
                              nmp_image_cover(&flat, &input),
                              nmp_image_cover(&narrow, &input)};
  unsigned taken = nmp_image_fill(&good, &input, filter, to, 4, scratch, SCRATCH_MAX) != NMP_OK;
  for (unsigned i = 0; i < sizeof found / sizeof found[0]; i++) {
    taken += found[i] != NMP_E_ARGUMENT;
  }
  return taken;
}

int main(void) {
  (void)tail(A, 0); /* a board starts here */
  unsigned differ = mistakes();
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
