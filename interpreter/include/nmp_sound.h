/* Samples of sound as the integers of a model's input: frames of logarithms of energies in bands, or of a cosine
 * transform of these (MFCC), of windows of samples that come as they come.
 *
 * Integers only, no allocation, no globals. schema/FORMAT.md has the formulas ("Sound"), numpy the same bytes
 * (nmpconv/base/sound.py). The model's file says how (convert --audio). A program that calls none of this has none of
 * it in flash.
 */
#ifndef NMP_SOUND_H
#define NMP_SOUND_H

#include "nmp.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct nmp_sound nmp_sound;

/* rate: samples a second. window, hop: samples of a frame, and from one to the next. points: of the Fourier transform.
 * bands: numbers that nmp_sound_frame takes the memory of. frames: of the input. bytes: of memory for nmp_sound_create.
 * numbers: of a frame of the input, at most bands.
 */
typedef struct nmp_sound_info {
  uint32_t rate, window, hop, points, bands, frames;
  size_t bytes;
  uint32_t numbers;
} nmp_sound_info;

/* Bytes of memory that nmp_sound_create takes. */
#define NMP_SOUND_BYTES(window, points) (64 + ((size_t)(window) * 2 + 7) / 8 * 8 + (size_t)(points) * 4 + 8)

/* NMP_E_ARGUMENT where there is no such input, or none that sound feeds. */
nmp_status nmp_sound_about(const nmp_net *net, uint32_t input, nmp_sound_info *info);

/* The first frame is of the first `window` samples. The model's file has to stay where it is; the net may go. memory:
 * of `bytes`, aligned to 8. NMP_E_ARGUMENT as above, NMP_E_ARENA where it is too small.
 */
nmp_status nmp_sound_create(nmp_sound **sound, const nmp_net *net, uint32_t input, void *memory, size_t bytes);

/* Takes samples until a frame is there, and says how many it took: `count`, or fewer where a frame is ready, which
 * nmp_sound_frame has to take before more are heard. */
size_t nmp_sound_hear(nmp_sound *sound, const int16_t *pcm, size_t count);

/* 1 where a frame is ready. */
int nmp_sound_ready(const nmp_sound *sound);

/* Writes the frame that is ready, its first info.numbers in units of 2^-16, and goes on to the next one. numbers:
 * info.bands of them. */
void nmp_sound_frame(nmp_sound *sound, int32_t *numbers);

/* Writes a frame's numbers as integers into the last frame of `to`, the bytes of the input; the others move forward by
 * one, and the first one goes. */
void nmp_sound_put(const nmp_sound *sound, const int32_t *numbers, void *to);

#ifdef __cplusplus
}
#endif

#endif
