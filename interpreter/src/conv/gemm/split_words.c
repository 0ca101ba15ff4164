#include "conv/gemm/split_words.h"

#include "conv/fits_int32.h"

#ifdef NMP_HAS_GEMM
#include <string.h>

#define S_MAX ((int64_t)1 << 46) /* S / 2^16 fits into int32, and so it does on the way */

int nmp_split_words_claim(const nmp_conv *c) {
  return c->x_wide && c->w_wide && c->in / c->groups % 4 == 0 && c->k <= 1u << 15 && nmp_conv_pixels(c) > 1;
}

size_t nmp_split_words_lane(size_t k_groups) {
  return k_groups * NMP_SPLIT_WORDS_GROUP +
         (k_groups + NMP_SPLIT_WORDS_GROUPS - 1) / NMP_SPLIT_WORDS_GROUPS * sizeof(int32_t);
}

void nmp_split_words_zeros(uint8_t *to, size_t n) {
  static const uint8_t zeros[NMP_SPLIT_WORDS_GROUP] = {0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x80, 0x80, 0x80};
  for (size_t i = 0; i < n; i += 4, to += NMP_SPLIT_WORDS_GROUP) {
    memcpy(to, zeros, sizeof(zeros));
  }
}

/* The nearest 256ths of a stretch of weights; returns their sum. In 16 bits, which compilers make vectors of. */
static int32_t split_high_bytes(int8_t *to, const int16_t *w, size_t n) {
  int16_t sum = 0;
  for (size_t i = 0; i < n; i++) {
    const int16_t nearest = (int16_t)((w[i] >> 8) + ((w[i] >> 7) & 1));
    const int16_t high = (int16_t)(nearest - ((nearest & ~(nearest >> 15)) >> 7)); /* 127 for 128 */
    to[i] = (int8_t)high;
    sum = (int16_t)(sum + high);
  }
  return sum;
}

/* Some k-groups of a lane, 4 products each; returns the sum of wh. */
static int32_t split_pack_groups(const int16_t *w, size_t k_groups, uint8_t *to, size_t lanes) {
  int8_t high[NMP_SPLIT_WORDS_GROUPS * 4];
  for (size_t i = 0; i < k_groups; i++) {
    memcpy(to + i * lanes * NMP_SPLIT_WORDS_GROUP, w + 4 * i, 4);
    memcpy(to + i * lanes * NMP_SPLIT_WORDS_GROUP + lanes * 4, w + 4 * i + 2, 4);
  }
  const int32_t sum = split_high_bytes(high, w, k_groups * 4);
  for (size_t i = 0; i < k_groups; i++) {
    memcpy(to + i * lanes * NMP_SPLIT_WORDS_GROUP + lanes * 8, high + 4 * i, 4);
  }
  return sum;
}

/* A channel without weights may have any shift. */
static int split_fits(const nmp_conv *c, size_t channel, size_t lane, nmp_gemm_panel *panel, int32_t *high) {
  const int64_t most = nmp_x_most(c) * nmp_sum_weights(c, channel).magnitudes;
  const int shift = most > 0 ? nmp_conv_shift(c, channel) : 0, unit = shift < 16 ? shift : 16;
  const int64_t bias = nmp_conv_bias(c, channel);
  if (shift < 0 || shift > 46 || bias > S_MAX >> shift || -bias > S_MAX >> shift) {
    return 0;
  }
  const int64_t start = bias * ((int64_t)1 << shift) + (((int64_t)1 << shift) >> 1);
  panel->start[lane] = (int32_t)(uint32_t)(uint64_t)start;
  *high = (int32_t)(start >> 16);
  panel->unit[lane] = unit;
  panel->shift[lane] = shift - unit;
  const int64_t largest = (start < 0 ? -start : start) + most;
  return largest < S_MAX && largest >> unit < INT32_MAX;
}

static void split_starts(const nmp_conv *c, size_t first, size_t channels, nmp_gemm_panel *panel, int32_t *high) {
  panel->fits_int32 = 1;
  for (size_t i = 0; i < channels; i++) {
    panel->bias[i] = nmp_conv_bias(c, first + i);
    panel->scale_shift[i] = (int8_t)nmp_conv_shift(c, first + i);
    panel->fits_int32 = panel->fits_int32 && split_fits(c, first + i, i, panel, &high[i]);
  }
  for (size_t i = 0; i < channels && !panel->fits_int32; i++) {
    panel->start[i] = high[i] = 0;
    panel->shift[i] = panel->scale_shift[i];
  }
}

void nmp_split_words_pack(const nmp_conv *c, size_t first, size_t channels, size_t lanes, nmp_gemm_panel *panel) {
  const size_t per_channel = c->k, k_groups = per_channel / 4;
  const int16_t *w = (const int16_t *)c->w + first * per_channel;
  uint8_t *to = (uint8_t *)(panel + 1);
  int32_t high[NMP_PANEL_CHANNELS] = {0};
  split_starts(c, first, channels, panel, high);
  for (size_t done = 0, n; done < k_groups; done += n) {
    int32_t sums[NMP_PANEL_CHANNELS] = {0};
    uint8_t *increase = to;
    n = k_groups - done < NMP_SPLIT_WORDS_GROUPS ? k_groups - done : NMP_SPLIT_WORDS_GROUPS;
    to += lanes * sizeof(int32_t);
    if (channels < lanes) {
      memset(to, 0, n * lanes * NMP_SPLIT_WORDS_GROUP);
    }
    for (size_t lane = 0; lane < channels; lane++) {
      sums[lane] = split_pack_groups(w + lane * per_channel + done * 4, n, to + lane * 4, lanes);
    }
    to += n * lanes * NMP_SPLIT_WORDS_GROUP;
    for (size_t lane = 0; lane < lanes; lane++) {
      const int32_t by = high[lane] - 255 * sums[lane] / 2;
      memcpy(increase + lane * sizeof(by), &by, sizeof(by));
      high[lane] = 0;
    }
  }
}
#endif
