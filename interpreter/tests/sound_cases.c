/* Sounds in sound_cases.h, which a test writes: nmp_sound against the checksums of numpy's integers. */
#include <stdio.h>
#include <string.h>

#include "memory.h"
#include "nmp_sound.h"

/* kind: see sample. samples: of the whole sound, heard in pieces of at most `piece`. */
typedef struct sound_case {
  const uint8_t *model;
  size_t bytes, input_bytes;
  uint32_t kind, samples, piece, frames, checksum;
} sound_case;

#define ALIGNED __attribute__((aligned(16)))
#include <sound_cases.h>

static ALIGNED uint8_t arena[ARENA_MAX];
static ALIGNED uint8_t memory[MEMORY_MAX];
static ALIGNED uint8_t window[INPUT_MAX];
static int16_t pcm[PIECE_MAX];
static int32_t numbers[BANDS_MAX];

static uint32_t add(uint32_t found, const void *bytes, size_t count) {
  const uint8_t *p = bytes; /* FNV-1a */
  for (size_t i = 0; i < count; i++) {
    found = (found ^ p[i]) * 16777619u;
  }
  return found;
}

static int16_t sample(uint32_t kind, uint32_t i, uint32_t random) {
  const int16_t noise = (int16_t)(random >> 16);
  switch (kind) {
    case 0:
      return noise;
    case 1:
      return INT16_MIN;
    case 2:
      return i & 1 ? INT16_MIN : INT16_MAX;
    case 3:
      return 0;
    case 4:
      return (int16_t)(noise / 8192);
    case 5:
      return i / 7 & 1 ? INT16_MIN : INT16_MAX;
    case 6:
      return i < 900 ? 0 : i == 900 ? INT16_MIN : 1;
    default:
      return (int16_t)(i * i * 3 / 64 & 0x7fff);
  }
}

static uint32_t hear(const sound_case *one, uint32_t *frames) {
  nmp_net *net;
  nmp_sound *sound;
  nmp_sound_info info;
  uint32_t found = 2166136261u, random = one->kind, done = 0;
  *frames = 0;
  if (nmp_create(&net, one->model, one->bytes, arena, sizeof arena, NULL, NULL) != NMP_OK ||
      nmp_sound_about(net, 0, &info) != NMP_OK || info.bytes > sizeof memory || info.bands > BANDS_MAX ||
      info.bytes != NMP_SOUND_BYTES(info.window, info.points) ||
      nmp_sound_create(&sound, net, 0, memory, info.bytes - 1) != NMP_E_ARENA ||
      nmp_sound_create(&sound, net, 1, memory, info.bytes) != NMP_E_ARGUMENT ||
      nmp_sound_create(&sound, net, 0, memory, info.bytes) != NMP_OK) {
    return 0;
  }
  memset(window, 0, one->input_bytes);
  while (done < one->samples) {
    uint32_t count = 0;
    for (; count < one->piece && done < one->samples; count++, done++) {
      random = random * 1664525u + 1013904223u;
      pcm[count] = sample(one->kind, done, random);
    }
    for (size_t heard = 0; heard < count;) {
      heard += nmp_sound_hear(sound, pcm + heard, count - heard);
      if (nmp_sound_ready(sound)) {
        nmp_sound_frame(sound, numbers);
        found = add(found, numbers, info.numbers * sizeof *numbers);
        nmp_sound_put(sound, numbers, window);
        ++*frames;
      }
    }
  }
  return add(found, window, one->input_bytes);
}

int main(void) {
  (void)tail(A, 0); /* a board starts here */
  unsigned differ = 0;
  const unsigned count = sizeof cases / sizeof cases[0];
  for (unsigned i = 0; i < count; i++) {
    uint32_t frames;
    const uint32_t found = hear(&cases[i], &frames);
    if (found != cases[i].checksum || frames != cases[i].frames) {
      printf("case %u: %lu frames, checksum %08lx\n", i, (unsigned long)frames, (unsigned long)found);
      differ++;
    }
  }
  printf("%u sounds, %u differ\n", count, differ);
  return differ != 0;
}
