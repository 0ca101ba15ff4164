/* A libFuzzer target: a camera's frame and a model's input, decided by bytes. Buffers have exactly the bytes that are
 * told, so that a read or a write beside them is seen. What is refused writes nothing; results are within their range.
 */
#include <stdlib.h>
#include <string.h>

#include "guarded.h"
#include "nmp_image.h"

#define BYTES_MAX 65536u
#define PIXELS_MAX (1u << 18) /* of the frame times the output's rows: longer ones only repeat */
#define FILL 0x5A

enum { PIXELS_SLOT, TO_SLOT, SCRATCH_SLOT };

static const uint8_t *deciding, *deciding_end;

static uint32_t byte(void) {
  return deciding < deciding_end ? *deciding++ : 0;
}

static uint32_t word(void) {
  const uint32_t low = byte(), second = byte(), third = byte();
  return low | second << 8 | third << 16 | byte() << 24;
}

/* Mostly small, sometimes around the largest or anything. */
static uint32_t side(void) {
  const uint32_t kind = byte();
  return kind < 200 ? byte() % 40 : kind < 230 ? NMP_IMAGE_SIDE_MAX - 2 + byte() % 4 : word();
}

static int32_t up_to(int32_t most) {
  const uint32_t edge = byte() & 7, any = word();
  return edge == 0 ? (int32_t)any : (int32_t)((int64_t)(any % (2u * (uint32_t)most + 1)) - most);
}

static size_t size_near(size_t need) {
  const uint32_t kind = byte();
  const size_t found = kind < 160 ? need : kind < 200 ? need - 1 : kind < 240 ? need + byte() : word();
  return found < BYTES_MAX ? found : BYTES_MAX;
}

static int is_whole(const uint8_t *data, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) {
    if (data[i] != FILL) {
      return 0;
    }
  }
  return 1;
}

static void check(int held) {
  if (!held) {
    abort();
  }
}

static void check_range(const nmp_image_input *input, const uint8_t *to) {
  const size_t count = (size_t)input->width * input->height * input->channels;
  for (size_t i = 0; i < count; i++) {
    const int32_t value = input->bits == 8 ? ((const int8_t *)to)[i] : ((const int16_t *)(const void *)to)[i];
    check(value >= input->clip_min && value <= input->clip_max);
  }
}

static const uint8_t *noise(void) {
  static uint8_t pixels[BYTES_MAX + 64];
  if (pixels[1] == 0) {
    for (size_t i = 0; i < sizeof(pixels); i++) {
      pixels[i] = (uint8_t)(i * 37 + i / 256 * 11);
    }
  }
  return pixels;
}

static nmp_image_input random_input(void) {
  nmp_image_input input = {side(), side(), byte() & 1 ? 3 : byte(), byte() & 1, byte() & 1 ? 8 : 16, byte() % 26, 0, 0,
                           {0},    {0}};
  if (byte() < 10) {
    input.bits = byte();
  }
  input.clip_min = byte() & 3 ? (input.bits == 8 ? -128 : -32768) : up_to(200);
  input.clip_max = byte() & 3 ? (input.bits == 8 ? 127 : 32767) : up_to(200);
  for (int c = 0; c < 3; c++) {
    input.factor[c] = up_to(1 << 21);
    input.bias[c] = up_to(1 << 30);
  }
  return input;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  deciding = data;
  deciding_end = data + bytes;
  const nmp_image_input input = random_input();
  nmp_image_frame frame = {NULL, 0, 0, (nmp_image_format)(byte() % 6), 0, 0, side(), side()};
  frame.left = byte() & 1 ? 0 : side();
  frame.top = byte() & 1 ? 0 : side();
  frame.stride = size_near(((size_t)frame.left + frame.width) * 4 + 4);
  frame.bytes = size_near(frame.stride * ((size_t)frame.top + frame.height));
  uint8_t *memory = take(PIXELS_SLOT, frame.bytes + 1, 1);
  memcpy(memory + 1, noise() + bytes % 64, frame.bytes); /* at any address */
  frame.pixels = memory + 1;
  if (byte() & 1) {
    const nmp_image_frame before = frame;
    if (nmp_image_cover(&frame, &input) == NMP_OK) {
      check(frame.left >= before.left && frame.left + frame.width <= before.left + before.width && frame.width > 0);
      check(frame.top >= before.top && frame.top + frame.height <= before.top + before.height && frame.height > 0);
    }
  }
  const size_t there = size_near((size_t)input.width * input.height * input.channels * (input.bits / 8));
  const size_t elements = size_near(NMP_IMAGE_SCRATCH(frame.width, input.channels));
  uint8_t *to = take(TO_SLOT, there, 2);
  uint32_t *scratch = take(SCRATCH_SLOT, 4 * elements, 4);
  memset(to, FILL, there);
  if ((uint64_t)frame.width * input.height <= PIXELS_MAX) {
    const nmp_image_filter filter = (nmp_image_filter)(byte() % 3);
    const nmp_status status = nmp_image_fill(&frame, &input, filter, to, there, scratch, elements);
    check(status == NMP_OK || (status == NMP_E_ARGUMENT && is_whole(to, there)));
    if (status == NMP_OK) {
      check_range(&input, to);
    }
  }
  give_back(scratch);
  give_back(to);
  give_back(memory);
  return 0;
}
