/* Front ends of sound: legal are those for which nothing overflows, whatever is heard. */
#include "base/build.h"
#include "base/fixed.h"
#include "base/util.h"
#include "core/model.h"
#include "gen/nmp_schema.h"

#if NMP_SOUND

#define POINTS_MIN 16
#define POINTS_MAX 4096
#define HOP_MAX 65535
#define WEIGHT_ONE 32768
#define TURN_ONE ((int64_t)1 << 30)
#define TURN_SLACK ((int64_t)1 << 31) /* of sin^2 + cos^2, for rounding */
#define FLOOR_MAX ((int64_t)1 << 62)
#define OFFSET_MAX ((int64_t)1 << 30)
#define CEPSTRUM_MAX ((int64_t)1 << 23) /* of the sum of the magnitudes of weights in a coefficient */

static uint32_t u16_at(fb_vector v, uint32_t i) {
  return fb_load16(v.data + 2 * (size_t)i);
}

static nmp_rule within(const char *what, int64_t found, int64_t low, int64_t high) {
  (void)what;
  return NMP_RULE(found < low || found > high ? NMP_E_TENSOR : NMP_OK, what, found, found < low ? low : high);
}

static nmp_rule check_weights(const char *what, fb_vector weights) {
  nmp_rule rule = NMP_FINE;
  for (uint32_t i = 0; i < weights.count && rule.status == NMP_OK; i++) {
    rule = within(what, u16_at(weights, i), 0, WEIGHT_ONE);
  }
  return rule;
}

static nmp_rule check_turns(fb_vector turns, uint32_t fourth) {
  nmp_rule rule = within("number of turns", turns.count, fourth + 1, fourth + 1);
  for (uint32_t i = 0; i < turns.count && rule.status == NMP_OK; i++) {
    rule = within("turn", fb_int_element(turns, i), i == fourth ? TURN_ONE : 0, i == 0 ? 0 : TURN_ONE);
  }
  for (uint32_t i = 0; i < turns.count && rule.status == NMP_OK; i++) {
    const int64_t sine = fb_int_element(turns, i), cosine = fb_int_element(turns, fourth - i);
    rule = within("square of a turn", sine * sine + cosine * cosine, 0, TURN_ONE * TURN_ONE + TURN_SLACK);
  }
  return rule;
}

static nmp_rule check_bands(const uint8_t *front, uint32_t points) {
  const fb_vector first = fb_sound_first(front), counts = fb_sound_counts(front), weights = fb_sound_weights(front);
  int64_t used = 0;
  nmp_rule rule = within("number of bands", counts.count, 1, first.count);
  if (rule.status == NMP_OK) {
    rule = within("number of first frequencies", first.count, counts.count, counts.count);
  }
  for (uint32_t i = 0; i < counts.count && rule.status == NMP_OK; i++) {
    rule = within("end of a band", (int64_t)u16_at(first, i) + u16_at(counts, i), 0, points / 2 + 1);
    used += u16_at(counts, i);
  }
  if (rule.status == NMP_OK) {
    rule = within("number of weights", weights.count, used, used);
  }
  return rule.status ? rule : check_weights("weight of a band", weights);
}

static nmp_rule check_cepstrum(fb_vector weights, uint32_t bands, uint32_t points) {
  const uint32_t count = weights.count / bands;
  nmp_rule rule = within("weights beside whole coefficients", weights.count % bands, 0, 0);
  if (rule.status == NMP_OK) {
    rule = within("number of coefficients", count, 0, bands < points ? bands : points);
  }
  for (uint32_t k = 0; k < count && rule.status == NMP_OK; k++) {
    int64_t sum = 0;
    for (uint32_t band = 0; band < bands; band++) {
      const int16_t weight = (int16_t)u16_at(weights, k * bands + band);
      sum += weight < 0 ? -weight : weight;
    }
    rule = within("weights of a coefficient", sum, 0, CEPSTRUM_MAX);
  }
  return rule;
}

static nmp_rule check_grid(const uint8_t *front, uint32_t width) {
  const fb_vector shifts = fb_sound_shifts(front), offsets = fb_sound_offsets(front);
  nmp_rule rule =
      within("number of shifts", shifts.count, shifts.count == 1 ? 1 : width, shifts.count == 1 ? 1 : width);
  if (rule.status == NMP_OK) {
    rule = within("number of offsets", offsets.count, shifts.count, shifts.count);
  }
  for (uint32_t i = 0; i < shifts.count && rule.status == NMP_OK; i++) {
    rule = within("shift of a number", (int8_t)shifts.data[i], NMP_SHIFT_MIN, NMP_SHIFT_MAX);
    if (rule.status == NMP_OK) {
      rule = within("offset of a number", fb_int_element(offsets, i), -OFFSET_MAX, OFFSET_MAX);
    }
  }
  return rule;
}

static nmp_rule check_front(const uint8_t *front, uint32_t size) {
  const uint32_t points = fb_sound_points(front), bands = fb_sound_counts(front).count;
  const fb_vector window = fb_sound_window(front), cepstrum = fb_sound_cepstrum(front);
  const uint64_t floor = fb_sound_floor(front);
  nmp_rule rule = within("samples a second", fb_sound_rate(front), 1, UINT32_MAX);
  if (rule.status == NMP_OK) {
    rule = within("points of a transform", points & (points - 1) ? 0 : points, POINTS_MIN, POINTS_MAX);
  }
  if (rule.status == NMP_OK) {
    rule = within("samples of a hop", fb_sound_hop(front), 1, HOP_MAX);
  }
  if (rule.status == NMP_OK) {
    rule = within("samples of a window", window.count, 2, points);
  }
  if (rule.status == NMP_OK) {
    rule = check_weights("weight of a sample", window);
  }
  if (rule.status == NMP_OK) {
    rule = check_turns(fb_sound_turns(front), points / 4);
  }
  if (rule.status == NMP_OK) {
    rule = check_bands(front, points);
  }
  if (rule.status == NMP_OK) {
    rule = within("floor", nmp_capped(floor), 1, FLOOR_MAX);
  }
  if (rule.status == NMP_OK) {
    rule = check_cepstrum(cepstrum, bands, points);
  }
  const uint32_t width = rule.status || cepstrum.count == 0 ? bands : cepstrum.count / bands;
  if (rule.status == NMP_OK) {
    rule = check_grid(front, width);
  }
  return rule.status ? rule : within("elements beside whole frames", size % width, 0, 0);
}

nmp_rule nmp_sound_check(const nmp_model *m, uint32_t input, nmp_needs *needs) {
  const uint8_t *front = fb_port_sound(fb_element(m->inputs, input));
  if (front == NULL) {
    return NMP_FINE;
  }
  nmp_tensor tensor;
  nmp_model_tensor(m, nmp_model_port(m->inputs, input), &tensor);
  nmp_spend(needs, (uint64_t)fb_sound_window(front).count + fb_sound_turns(front).count + fb_sound_first(front).count +
                       fb_sound_counts(front).count + fb_sound_weights(front).count + fb_sound_shifts(front).count +
                       fb_sound_offsets(front).count + fb_sound_cepstrum(front).count);
  if (nmp_model_state(m, input) != -1) {
    return NMP_RULE(NMP_E_TENSOR, "sound of a state", 1, 0);
  }
  return check_front(front, tensor.size);
}

#endif
