/* Sound: a window, a Fourier transform of real numbers by one of half as many complex ones, energies in bands, their
 * logarithms, maybe a cosine transform of these. FORMAT.md says how every number is rounded.
 *
 * Bounds. A weighted sample has at most 2^30, so z = x[2i] + i x[2i+1] has a magnitude of at most 1.42 * 2^30. A stage
 * of the transform returns a mean of numbers that were turned, by at most 1 + 2^-29, and rounded, by less than 10: no
 * magnitude passes 1.43 * 2^30 < 2^31 in all of at most 6 stages, and no part of one does. A frequency has then at most
 * 2^29 + 2^8, its power 2^58 + 2^39; by Parseval all of them have together at most 2^58 + 2^45, and with PAST_BITS left
 * out and weights of at most 2^15 an energy has 2^63 + 2^50. With a floor of at most 2^62 that is below 2^64. A
 * logarithm has then less than 2^22, and the sum of a coefficient, whose weights have together at most 2^23, 2^45.
 */
#include "nmp_sound.h"

#include <string.h>

#include "base/fixed.h"
#include "core/model.h"
#include "gen/nmp_schema.h"

#define PAST_BITS 10 /* of powers */
#define LN2 45426    /* * 2^-16 */
#define PIECES_BITS 6
#define CEPSTRUM_BITS 15
#define STATE_BYTES 64 /* before the samples; see NMP_SOUND_BYTES */

struct nmp_sound {
  const uint8_t *front; /* in the file */
  const uint16_t *window;
  const int32_t *turns;
  int32_t lo, hi; /* of the input's integers */
  uint32_t elements, bits;
  uint32_t heard; /* samples of the window */
  uint32_t skip;  /* samples before the next one, where hops are longer than windows */
  uint32_t size, hop, points, bands;
};

/* round(2^16 * log2(1 + i / 64)), the last one without its bit 16, which differences do not miss. */
static const uint16_t log2_table[(1 << PIECES_BITS) + 1] = {
    0,     1466,  2909,  4331,  5732,  7112,  8473,  9814,  11136, 12440, 13727, 14996, 16248,
    17484, 18704, 19909, 21098, 22272, 23433, 24579, 25711, 26830, 27936, 29029, 30109, 31178,
    32234, 33279, 34312, 35334, 36346, 37346, 38336, 39316, 40286, 41246, 42196, 43137, 44068,
    44990, 45904, 46809, 47705, 48593, 49472, 50344, 51207, 52063, 52911, 53751, 54584, 55410,
    56229, 57040, 57845, 58643, 59434, 60219, 60997, 61769, 62534, 63294, 64047, 64794, 0,
};

static int16_t *samples_of(nmp_sound *s) {
  return (int16_t *)(void *)((uint8_t *)s + STATE_BYTES);
}

/* Parts of complex numbers, one after the other; then the halves of powers, the low one first. */
static int32_t *numbers_of(nmp_sound *s) {
  return (int32_t *)(void *)((uint8_t *)s + STATE_BYTES + ((size_t)s->size * 2 + 7) / 8 * 8);
}

static uint32_t u16_at(fb_vector v, uint32_t i) {
  return fb_load16(v.data + 2 * (size_t)i);
}

/* Numbers of a frame of the input. */
static uint32_t width_of(const uint8_t *front, uint32_t bands) {
  const uint32_t count = fb_sound_cepstrum(front).count;
  return count ? count / bands : bands;
}

static const uint8_t *front_of(const nmp_net *net, uint32_t input, nmp_tensor *tensor) {
  const nmp_model *m = net == NULL ? NULL : nmp_model_of(net);
  if (!NMP_SOUND || m == NULL || input >= m->inputs.count) {
    return NULL;
  }
  nmp_model_tensor(m, nmp_model_port(m->inputs, input), tensor);
  return fb_port_sound(fb_element(m->inputs, input));
}

nmp_status nmp_sound_about(const nmp_net *net, uint32_t input, nmp_sound_info *info) {
  nmp_tensor tensor;
  const uint8_t *front = front_of(net, input, &tensor);
  if (front == NULL || info == NULL) {
    return NMP_E_ARGUMENT;
  }
  info->rate = fb_sound_rate(front);
  info->window = fb_sound_window(front).count;
  info->hop = fb_sound_hop(front);
  info->points = fb_sound_points(front);
  info->bands = fb_sound_counts(front).count;
  info->numbers = width_of(front, info->bands);
  info->frames = tensor.size / info->numbers;
  info->bytes = NMP_SOUND_BYTES(info->window, info->points);
  return NMP_OK;
}

typedef char state_is_small[sizeof(nmp_sound) <= STATE_BYTES ? 1 : -1];

nmp_status nmp_sound_create(nmp_sound **sound, const nmp_net *net, uint32_t input, void *memory, size_t bytes) {
  nmp_sound_info info;
  nmp_tensor tensor;
  const uint8_t *front = front_of(net, input, &tensor);
  if (front == NULL || sound == NULL || memory == NULL || (uintptr_t)memory % 8 != 0) {
    return NMP_E_ARGUMENT;
  }
  (void)nmp_sound_about(net, input, &info);
  if (bytes < info.bytes) {
    return NMP_E_ARENA;
  }
  nmp_sound *s = memory;
  s->front = front;
  s->window = (const uint16_t *)(const void *)fb_sound_window(front).data;
  s->turns = (const int32_t *)(const void *)fb_sound_turns(front).data;
  s->lo = tensor.lo;
  s->hi = tensor.hi;
  s->elements = tensor.size;
  s->bits = tensor.bits;
  s->heard = 0;
  s->skip = 0;
  s->size = info.window;
  s->hop = info.hop;
  s->points = info.points;
  s->bands = info.bands;
  *sound = s;
  return NMP_OK;
}

size_t nmp_sound_hear(nmp_sound *s, const int16_t *pcm, size_t count) {
  const size_t skipped = count < s->skip ? count : s->skip;
  const size_t room = s->size - s->heard, left = count - skipped, taken = left < room ? left : room;
  memcpy(samples_of(s) + s->heard, pcm + skipped, taken * sizeof *pcm);
  s->skip -= (uint32_t)skipped;
  s->heard += (uint32_t)taken;
  return skipped + taken;
}

int nmp_sound_ready(const nmp_sound *s) {
  return s->heard == s->size;
}

/* A quarter of a product with a turn; one instruction of most CPUs. */
static inline int32_t quarter(int32_t a, int32_t turn) {
  return (int32_t)(((int64_t)a * turn) >> 32);
}

/* Cosine and sine of 2 pi k / points, times 2^30, for k below three quarters. */
typedef struct turn {
  int32_t c, s;
} turn;

static turn turn_of(const int32_t *turns, uint32_t fourth, uint32_t k) {
  turn t;
  if (k < fourth) {
    t.c = turns[fourth - k];
    t.s = turns[k];
  } else if (k < 2 * fourth) {
    t.c = -turns[k - fourth];
    t.s = turns[2 * fourth - k];
  } else {
    t.c = -turns[3 * fourth - k];
    t.s = -turns[k - 2 * fourth];
  }
  return t;
}

/* The next of numbers whose bits are counted up in reverse; half: the bit that is first. */
static inline uint32_t next_place(uint32_t place, uint32_t half) {
  for (; place & half; half >>= 1) {
    place ^= half;
  }
  return place | half;
}

/* Weighted samples as complex numbers, in the order of their bits reversed. */
static void weigh(nmp_sound *s, int32_t *z) {
  const int16_t *pcm = samples_of(s);
  const uint16_t *window = s->window;
  const uint32_t pairs = s->size / 2, half = s->points / 4;
  uint32_t place = 0;
  for (uint32_t i = 0; i < s->points / 2; i++) {
    int32_t *to = z + 2 * (size_t)place;
    if (i < pairs) {
      to[0] = *pcm++ * (int32_t)*window++;
      to[1] = *pcm++ * (int32_t)*window++;
    } else {
      to[0] = i == pairs && s->size % 2 ? *pcm * (int32_t)*window : 0;
      to[1] = 0;
    }
    place = next_place(place, half);
  }
}

/* The first stage, of pairs or fours that nothing turns. Returns the length of the parts that are transformed then. */
static uint32_t begin(int32_t *z, uint32_t m) {
  uint32_t odd = m;
  while (odd > 2) {
    odd >>= 2;
  }
  if (odd == 2) {
    for (int32_t *p = z; p < z + 2 * (size_t)m; p += 4) {
      const int32_t ar = p[0] >> 1, ai = p[1] >> 1, br = p[2] >> 1, bi = p[3] >> 1;
      p[0] = ar + br;
      p[1] = ai + bi;
      p[2] = ar - br;
      p[3] = ai - bi;
    }
    return 2;
  }
  for (int32_t *p = z; p < z + 2 * (size_t)m; p += 8) { /* a turn by 0 is a quarter, rounded alike */
    const int32_t ar = p[0] >> 2, ai = p[1] >> 2, br = p[2] >> 2, bi = p[3] >> 2;
    const int32_t cr = p[4] >> 2, ci = p[5] >> 2, dr = p[6] >> 2, di = p[7] >> 2;
    p[0] = ar + br + cr + dr;
    p[1] = ai + bi + ci + di;
    p[2] = ar - br + ci - di;
    p[3] = ai - bi - cr + dr;
    p[4] = ar + br - cr - dr;
    p[5] = ai + bi - ci - di;
    p[6] = ar - br - ci + di;
    p[7] = ai - bi + cr - dr;
  }
  return 4;
}

/* Fours of parts of `length` become parts of 4 * length. */
static void stage(int32_t *z, uint32_t m, uint32_t length, const int32_t *turns, uint32_t fourth) {
  const uint32_t step = fourth / length;
  for (uint32_t j = 0; j < length; j++) {
    const turn w1 = turn_of(turns, fourth, j * step), w2 = turn_of(turns, fourth, 2 * j * step);
    const turn w3 = turn_of(turns, fourth, 3 * j * step);
    for (uint32_t at = j; at < m; at += 4 * length) {
      int32_t *a = z + 2 * (size_t)at, *b = a + 2 * (size_t)length, *c = b + 2 * (size_t)length;
      int32_t *d = c + 2 * (size_t)length;
      const int32_t br = quarter(b[0], w2.c) + quarter(b[1], w2.s), bi = quarter(b[1], w2.c) - quarter(b[0], w2.s);
      const int32_t ar = a[0] >> 2, ai = a[1] >> 2;
      const int32_t pr = ar + br, pi = ai + bi, qr = ar - br, qi = ai - bi;
      const int32_t cr = quarter(c[0], w1.c) + quarter(c[1], w1.s), ci = quarter(c[1], w1.c) - quarter(c[0], w1.s);
      const int32_t dr = quarter(d[0], w3.c) + quarter(d[1], w3.s), di = quarter(d[1], w3.c) - quarter(d[0], w3.s);
      const int32_t rr = cr + dr, ri = ci + di, sr = cr - dr, si = ci - di;
      a[0] = pr + rr;
      a[1] = pi + ri;
      b[0] = qr + si;
      b[1] = qi - sr;
      c[0] = pr - rr;
      c[1] = pi - ri;
      d[0] = qr - si;
      d[1] = qi + sr;
    }
  }
}

static void write_power(int32_t *to, int32_t re, int32_t im) {
  const uint64_t power = (uint64_t)((int64_t)re * re + (int64_t)im * im) >> PAST_BITS;
  to[0] = (int32_t)(uint32_t)power;
  to[1] = (int32_t)(uint32_t)(power >> 32);
}

/* Powers of the frequencies 0 to m, in place. */
static void powers(int32_t *z, uint32_t m, const int32_t *turns) {
  const uint32_t fourth = m / 2;
  for (uint32_t k = 0; k <= m / 2; k++) {
    int32_t *a = z + 2 * (size_t)k, *b = z + 2 * (size_t)(m - k);
    const int32_t *y = k ? b : z;
    const int32_t zr = a[0] >> 1, zi = a[1] >> 1, yr = y[0] >> 1, yi = y[1] >> 1;
    const int32_t er = (zr + yr) >> 2, ei = (zi - yi) >> 2, odd_r = zi + yi, odd_i = yr - zr;
    const int32_t c = turns[fourth - k], s = turns[k];
    const int32_t tr = quarter(odd_r, c) + quarter(odd_i, s), ti = quarter(odd_i, c) - quarter(odd_r, s);
    write_power(b, er - tr, ei - ti);
    write_power(a, er + tr, ei + ti);
  }
}

/* Natural logarithm times 2^16 of an energy in units of 2^-unit. */
static int32_t logarithm(uint64_t v, int32_t unit) {
  int32_t top = 63;
  uint32_t high = (uint32_t)(v >> 32), low = (uint32_t)v;
  if (high == 0) {
    high = low;
    low = 0;
    top = 31;
  }
  for (; high < 0x80000000u; top--) {
    high = high << 1 | low >> 31;
    low <<= 1;
  }
  const uint32_t i = high >> (31 - PIECES_BITS) & ((1 << PIECES_BITS) - 1), f = high >> (15 - PIECES_BITS) & 0xffff;
  const uint32_t step = (uint16_t)(log2_table[i + 1] - log2_table[i]);
  const int32_t log2 = top * 65536 + (int32_t)(log2_table[i] + (step * f >> 16)) - unit * 65536;
  return (int32_t)nmp_rsh((int64_t)log2 * LN2, 16);
}

static void logarithms(const nmp_sound *s, const int32_t *z, int32_t *numbers) {
  const fb_vector first = fb_sound_first(s->front), counts = fb_sound_counts(s->front);
  const uint16_t *weights = (const uint16_t *)(const void *)fb_sound_weights(s->front).data;
  const uint64_t floor = fb_sound_floor(s->front);
  int32_t unit = 63;
  for (uint32_t n = s->points; n > 1; n >>= 1) {
    unit -= 2;
  }
  for (uint32_t band = 0; band < s->bands; band++) {
    const uint32_t *power = (const uint32_t *)(const void *)(z + 2 * (size_t)u16_at(first, band));
    uint64_t sum = floor;
    for (uint32_t n = u16_at(counts, band); n > 0; n--) {
      const uint32_t weight = *weights++;
      sum += (uint64_t)power[0] * weight + ((uint64_t)(power[1] * weight) << 32);
      power += 2;
    }
    numbers[band] = logarithm(sum, unit);
  }
}

/* Coefficients of the logarithms, in their place. room: of at least as many. */
static void transform(const nmp_sound *s, int32_t *numbers, int32_t *room) {
  const fb_vector cepstrum = fb_sound_cepstrum(s->front);
  const int16_t *weight = (const int16_t *)(const void *)cepstrum.data;
  const uint32_t count = cepstrum.count / s->bands;
  for (uint32_t k = 0; k < count; k++) {
    int64_t sum = 0;
    for (uint32_t band = 0; band < s->bands; band++) {
      sum += (int64_t)numbers[band] * *weight++;
    }
    room[k] = (int32_t)nmp_rsh(sum, CEPSTRUM_BITS);
  }
  memcpy(numbers, room, count * sizeof *room);
}

void nmp_sound_frame(nmp_sound *s, int32_t *numbers) {
  int32_t *z = numbers_of(s);
  const uint32_t m = s->points / 2;
  weigh(s, z);
  for (uint32_t length = begin(z, m); length < m; length *= 4) {
    stage(z, m, length, s->turns, s->points / 4);
  }
  powers(z, m, s->turns);
  logarithms(s, z, numbers);
  transform(s, numbers, z);
  const uint32_t gone = s->hop < s->size ? s->hop : s->size;
  s->heard = s->size - gone;
  s->skip = s->hop - gone;
  memmove(samples_of(s), samples_of(s) + gone, s->heard * sizeof(int16_t));
}

void nmp_sound_put(const nmp_sound *s, const int32_t *numbers, void *to) {
  const fb_vector shifts = fb_sound_shifts(s->front), offsets = fb_sound_offsets(s->front);
  const uint32_t count = width_of(s->front, s->bands), frames = s->elements / count, width = s->bits / 8;
  const uint32_t apart = fb_sound_turned(s->front) ? frames : 1; /* from a band's integer to the next one's */
  const size_t row = (size_t)(apart > 1 ? frames : s->elements) * width, gone = (size_t)(apart > 1 ? 1 : count) * width;
  for (uint8_t *at = to; at < (uint8_t *)to + (size_t)s->elements * width; at += row) {
    memmove(at, at + gone, row - gone);
  }
  for (uint32_t i = 0; i < count; i++) {
    const uint32_t grid = shifts.count > 1 ? i : 0;
    const int64_t number = (int64_t)numbers[i] - fb_int_element(offsets, grid);
    const int32_t integer = nmp_sat(nmp_rsh(number, (int8_t)shifts.data[grid]), s->lo, s->hi);
    const size_t place = apart > 1 ? (size_t)i * frames + frames - 1 : s->elements - count + (size_t)i;
    if (width == 1) {
      ((int8_t *)to)[place] = (int8_t)integer;
    } else {
      ((int16_t *)to)[place] = (int16_t)integer;
    }
  }
}
