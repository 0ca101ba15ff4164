/* A libFuzzer target: bytes of a line for the parser of frames, or a frame, which is encoded and found again. */
#include <stdlib.h>
#include <string.h>

#include "frame.h"

static void check(const frame *f) {
  uint8_t line[FRAME_ENCODED + 2];
  size_t length = frame_encode(line, f->type, f->seq, f->payload, f->bytes);
  frame_parser parser = {{0}, 0};
  frame again;
  int found = 0;
  for (size_t i = 0; i < length; i++) {
    if (frame_push(&parser, line[i], &again)) {
      found++;
      if (again.type != f->type || again.seq != f->seq || again.bytes != f->bytes ||
          memcmp(again.payload, f->payload, f->bytes) != 0) {
        abort();
      }
    }
  }
  if (found != 1) {
    abort();
  }
}

size_t LLVMFuzzerMutate(uint8_t *data, size_t bytes, size_t most);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t most, unsigned int number);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Every other time a right frame of some of the bytes comes first, or in their place, which chance does not make. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t most, unsigned int number) {
  bytes = LLVMFuzzerMutate(data, bytes, most);
  uint8_t line[FRAME_ENCODED + 2];
  const size_t from = bytes ? number / 8 % bytes : 0;
  const size_t payload = bytes - from < FRAME_PAYLOAD ? bytes - from : FRAME_PAYLOAD;
  const size_t length = frame_encode(line, (uint8_t)(number / 2), (uint16_t)(number / 4), data + from, payload);
  if (number % 2 == 0 || length > most) {
    return bytes;
  }
  const size_t rest = number % 4 == 1 ? 0 : bytes < most - length ? bytes : most - length;
  memmove(data + length, data, rest);
  memcpy(data, line, length);
  return length + rest;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  frame_parser parser = {{0}, 0};
  frame f;
  if (bytes > 2 && data[0] & 1) {
    size_t left = bytes - 3;
    f = (frame){data[1], data[2], data + 3, left < FRAME_PAYLOAD ? left : FRAME_PAYLOAD};
    check(&f);
  }
  for (size_t i = 0; i < bytes; i++) {
    if (frame_push(&parser, data[i], &f)) {
      check(&f);
    }
  }
  return 0;
}
