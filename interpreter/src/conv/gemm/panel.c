#include "conv/gemm/panel.h"

#include "conv/fits_int32.h"
#include "conv/gemm/split_words.h"

#ifdef NMP_HAS_GEMM
#include <string.h>

#define WEIGHTS_AT_ONCE 128 /* of a channel, in k-groups */
#define SPLIT_BYTES 16

/* The sum of a channel's weights of int8. */
static int64_t pack_sum(const nmp_conv *c, size_t channel) {
  const int8_t *w = (const int8_t *)c->w + channel * c->k;
  int64_t sum = 0;
  for (size_t left = c->k, n; left > 0; left -= n, w += n) {
    int16_t part = 0;
    n = nmp_min(left, NMP_STRETCH);
    for (size_t i = 0; i < n; i++) {
      part = (int16_t)(part + w[i]);
    }
    sum += part;
  }
  return sum;
}

/* nmp_gemm_fits_int32, of weights with these sums. A channel without weights has its bias for a sum, whatever its shift
 * is. */
static int pack_fits(const nmp_conv *c, const nmp_gemm_product *p, size_t channel, const nmp_weight_sums *w,
                     int32_t *start, int32_t *shift) {
  const int split = p->planes == 2;
  const int by = w->magnitudes > 0 ? nmp_conv_shift(c, channel) - 8 * split : split;
  if (by < split || by > 30) {
    return 0;
  }
  const int64_t half = by > 0 ? (int64_t)1 << (by - 1) : 0;
  const int64_t first = nmp_conv_bias(c, channel) * ((int64_t)1 << by) + half;
  /* Split planes: 256ths of x, and what the low parts carry. */
  const int64_t most = split ? w->magnitudes * 128 + w->magnitudes / 2 + 1 : w->magnitudes * nmp_x_most(c);
  /* Bytes of x are 128 too large, or low ones 128 too small. */
  const int64_t more = p->zero ? -128 * w->sum : p->bytes ? w->sum >> 1 : 0;
  *start = (int32_t)(uint32_t)(uint64_t)(first + more);
  *shift = by;
  return nmp_fits_int32(first, most);
}

/* Few weights of int8 fit as large as they can be. */
int nmp_gemm_fits_int32(const nmp_conv *c, const nmp_gemm_product *p, size_t channel, int32_t *start, int32_t *shift) {
  nmp_weight_sums w = {.magnitudes = 128 * (int64_t)c->k};
  if (c->w_wide || !pack_fits(c, p, channel, &w, start, shift)) {
    w = nmp_sum_weights(c, channel);
  } else if (p->zero || p->bytes) {
    w.sum = pack_sum(c, channel);
  }
  return pack_fits(c, p, channel, &w, start, shift);
}

/* True when one of n words is so high that its high byte is one more than it has room for. */
static int pack_has_highest(const nmp_conv *c, size_t first, size_t n) {
  int found = 0;
  for (size_t i = first; i < first + n; i++) {
    found |= ((const int16_t *)c->w)[i] >= 127 * 256 + 128;
  }
  return found;
}

/* Sets panel->lowest and panel->apart, from bit `bit` on, for each place in k-groups 4 i to 4 i + 3 of n weights.
 * Products fit together for any x where the magnitudes of their weights do.
 */
static void pack_sums(const nmp_conv *c, const nmp_gemm_product *p, size_t first, size_t n, size_t bit,
                      nmp_gemm_panel *panel) {
  const int8_t *bytes = (const int8_t *)c->w + first;
  const int16_t *words = (const int16_t *)c->w + first;
  const size_t apart = p->k_group / p->element;
  const int32_t most = p->element == 2 ? 65535 : 255;
  for (size_t group = 0; group < n; group += 4 * apart, bit++) {
    for (size_t i = group; i < group + apart; i++) {
      int32_t sums[2] = {0, 0};
      for (size_t k = 0; k < 4 && i + k * apart < n; k++) {
        const int32_t w = c->w_wide ? words[i + k * apart] : bytes[i + k * apart];
        sums[k / 2] += w < 0 ? -w : w;
      }
      panel->lowest |= sums[0] > most || sums[1] > most;
      panel->apart |= (int64_t)((uint64_t)(sums[0] + sums[1] > most) << nmp_min(bit, 63));
    }
  }
}

static void pack_extremes(const nmp_conv *c, const nmp_gemm_product *p, const nmp_gemm_shape *s, size_t first,
                          size_t channels, nmp_gemm_panel *panel) {
  for (size_t i = 0; i < channels * s->segments; i++) {
    const size_t bit = i % s->segments * ((s->k_groups + 3) / 4);
    pack_sums(c, p, first * c->k + i * s->per_segment, s->per_segment, bit, panel);
  }
  panel->highest = c->w_wide && pack_has_highest(c, first * c->k, channels * c->k);
}

static void pack_starts(const nmp_conv *c, const nmp_gemm_product *p, const nmp_gemm_shape *s, size_t first,
                        size_t channels, nmp_gemm_panel *panel) {
  memset(panel, 0, sizeof(*panel));
  if (p->extremes) {
    pack_extremes(c, p, s, first, channels, panel);
  }
  panel->fits_int32 = 1;
  for (size_t i = 0; i < channels; i++) {
    panel->bias[i] = nmp_conv_bias(c, first + i);
    panel->scale_shift[i] = (int8_t)nmp_conv_shift(c, first + i);
    panel->fits_int32 = panel->fits_int32 && nmp_gemm_fits_int32(c, p, first + i, &panel->start[i], &panel->shift[i]);
    panel->unit[i] = p->bytes ? (int32_t)(nmp_sum_weights(c, first + i).sum & 1) * 128 : 0;
  }
  for (size_t i = 0; i < channels && !panel->fits_int32; i++) {
    const int64_t sum = nmp_sum_weights(c, first + i).sum;
    panel->start[i] = p->zero ? (int32_t)(-128 * sum) : c->x_wide && c->w_wide ? (int32_t)sum : 0;
    panel->shift[i] = panel->scale_shift[i];
  }
}

static void pack_widen(int16_t *to, const int8_t *from, size_t n) {
  for (size_t i = 0; i < n; i++) {
    to[i] = from[i];
  }
}

/* n weights of a channel from number `at` on, as k-groups of `unit` bytes that are `step` bytes apart. */
static void pack_k_groups(const nmp_conv *c, const nmp_gemm_product *p, size_t at, size_t n, uint8_t *to, size_t unit,
                          size_t step) {
  int16_t wide[WEIGHTS_AT_ONCE];
  const uint8_t *w = (const uint8_t *)c->w + (at << c->w_wide);
  size_t bytes = n * p->element;
  if (p->element == 2 && !c->w_wide) {
    pack_widen(wide, (const int8_t *)w, n);
    w = (const uint8_t *)wide;
  }
  for (; bytes >= 4 && unit == 4; bytes -= 4, w += 4, to += step) {
    memcpy(to, w, 4);
  }
  for (; bytes >= unit; bytes -= unit, w += unit, to += step) {
    memcpy(to, w, unit);
  }
  memcpy(to, w, bytes);
}

/* The same of two channels whose elements are packed as they are stored, in k-groups of 4 bytes, the first one low. */
static void pack_two(const nmp_conv *c, const nmp_gemm_product *p, size_t at, size_t n, uint8_t *to, size_t step) {
  const size_t pitch = c->k * p->element, last = n * p->element & 7;
  const uint8_t *w = (const uint8_t *)c->w + at * p->element, *end = w + n * p->element - last;
  for (; w < end; w += 8, to += 2 * step) {
    uint64_t x, y;
    memcpy(&x, w, 8);
    memcpy(&y, w + pitch, 8);
    const uint64_t first = (x & UINT32_MAX) | y << 32, second = x >> 32 | (y & ~(uint64_t)UINT32_MAX);
    memcpy(to, &first, 8);
    memcpy(to + step, &second, 8);
  }
  pack_k_groups(c, p, at + n - last / p->element, last / p->element, to, 4, step);
  pack_k_groups(c, p, at + c->k + n - last / p->element, last / p->element, to + 4, 4, step);
}

/* The same of four. */
static void pack_four(const nmp_conv *c, const nmp_gemm_product *p, size_t at, size_t n, uint8_t *to, size_t step) {
  const size_t whole = n & ~(size_t)(16 / p->element - 1), groups = whole * p->element / 4;
  p->pack_four(to, step, (const uint8_t *)c->w + at * p->element, c->k * p->element, whole * p->element);
  for (size_t i = 0; i < 4; i += 2) {
    pack_two(c, p, at + i * c->k + whole, n - whole, to + groups * step + 4 * i, step);
  }
}

/* Two k-groups lie together, but a last one that is alone. */
static void pack_pairs(const nmp_conv *c, const nmp_gemm_product *p, size_t at, size_t n, uint8_t *to, size_t lane,
                       size_t step) {
  const size_t unit = p->k_group, rest = n % (2 * unit / p->element), alone = rest * p->element <= unit ? rest : 0;
  pack_k_groups(c, p, at, n - alone, to + lane * 2 * unit, 2 * unit, 2 * step);
  pack_k_groups(c, p, at + n - alone, alone, to + (n - alone) * p->element / unit * step + lane * unit, unit, step);
}

/* The same as high bytes and low ones. The high ones of four lanes lie in front of their low ones. */
static void pack_split_bytes(const nmp_conv *c, size_t at, size_t n, uint8_t *to, size_t step) {
  const int16_t *w = (const int16_t *)c->w + at;
  for (size_t i = 0; i < n; i++) {
    uint8_t *high = to + i / 4 * step + i % 4;
    *high = (uint8_t)((uint16_t)w[i] >> 8);
    high[SPLIT_BYTES] = (uint8_t)w[i];
  }
}

/* So that w = 256 * high + low with low in int8: where low is negative then, high is 1 more. */
static void pack_signed_bytes(uint8_t *to, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 2 * SPLIT_BYTES) {
    for (size_t k = i; k < i + SPLIT_BYTES; k++) {
      to[k] = (uint8_t)(to[k] + (to[SPLIT_BYTES + k] >> 7));
    }
  }
}

/* Some k-groups of all channels at a time, so that what is written stays in the cache. */
void nmp_gemm_pack_segment(const nmp_conv *c, const nmp_gemm_product *p, const nmp_gemm_shape *s, size_t at,
                           size_t channels, uint8_t *to, size_t step) {
  const int stored = p->k_group == 4 && p->element == 1 + c->w_wide;
  for (size_t i = 0; i < s->per_segment; i += WEIGHTS_AT_ONCE) {
    for (size_t lane = 0; lane < channels; lane++) {
      const size_t first = at + lane * c->k + i, n = nmp_min(WEIGHTS_AT_ONCE, s->per_segment - i);
      uint8_t *place = to + i * p->element / p->k_group * step;
      if (p->bytes) {
        pack_split_bytes(c, first, n, place + lane / 4 * 2 * SPLIT_BYTES + lane % 4 * p->k_group, step);
      } else if (p->pairs) {
        pack_pairs(c, p, first, n, place, lane, step);
      } else if (stored && p->pack_four && lane + 3 < channels) {
        pack_four(c, p, first, n, place + lane * 4, step);
        lane += 3;
      } else if (stored && lane + 1 < channels) {
        pack_two(c, p, first, n, place + lane * 4, step);
        lane++;
      } else {
        pack_k_groups(c, p, first, n, place + lane * p->k_group, p->k_group, step);
      }
    }
  }
}

void nmp_gemm_pack_panel(const nmp_conv *c, const nmp_gemm_product *p, const nmp_gemm_shape *s, size_t first,
                         size_t channels, size_t vectors, nmp_gemm_panel *panel) {
  uint8_t *to = (uint8_t *)(panel + 1);
  const size_t step = vectors * p->lanes * nmp_gemm_lane(p);
  if (nmp_is_split_words(p)) {
    memset(panel, 0, sizeof(*panel));
    nmp_split_words_pack(c, first, channels, vectors * p->lanes, panel);
    return;
  }
  pack_starts(c, p, s, first, channels, panel);
  if (channels < vectors * p->lanes || s->per_segment * p->element != s->k_groups * p->k_group) {
    memset(to, 0, s->segments * s->k_groups * step);
  }
  for (size_t segment = 0; segment < s->segments; segment++, to += s->k_groups * step) {
    nmp_gemm_pack_segment(c, p, s, first * c->k + segment * s->per_segment, channels, to, step);
  }
  if (p->bytes && !panel->highest) { /* there is room */
    pack_signed_bytes((uint8_t *)(panel + 1), s->segments * s->k_groups * step);
  }
}
#endif
