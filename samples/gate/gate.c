/* The C function of gate.py: the same integers. */
#include "nmp_custom.h"

static int64_t round_shift(int64_t a, int shift) {
  return shift > 0 ? (a + ((int64_t)1 << (shift - 1))) >> shift : a * ((int64_t)1 << -shift);
}

/* floor(a / b + 1/2), b > 0. */
static int64_t round_divide(int64_t a, int64_t b) {
  const int64_t twice = 2 * a + b;
  return twice / (2 * b) - (twice % (2 * b) < 0);
}

static int32_t load(const nmp_tensor *t, size_t i) {
  return t->bits == 8 ? ((const int8_t *)t->data)[i] : ((const int16_t *)t->data)[i];
}

static void store(const nmp_tensor *t, size_t i, int64_t value) {
  value = value < t->lo ? t->lo : value > t->hi ? t->hi : value;
  if (t->bits == 8) {
    ((int8_t *)t->data)[i] = (int8_t)value;
  } else {
    ((int16_t *)t->data)[i] = (int16_t)value;
  }
}

static int within(int value, int least, int most) {
  return value >= least && value <= most;
}

static int check(const nmp_custom_call *call) {
  const nmp_tensor *x = &call->inputs[0], *y = call->output;
  if (call->input_count != 1 || call->attribute_count != 1 || x->rank != 4 || y->rank != 4) {
    return 0;
  }
  for (int i = 0; i < 4; i++) {
    if (x->shape[i] != y->shape[i]) {
      return 0;
    }
  }
  return (int64_t)x->shape[1] * x->shape[2] <= 65536 && within(call->attributes[0], -32767, 32767) &&
         within(x->exponent, -31, 14) && within(y->exponent - x->exponent, -15, 15) &&
         call->scratch_bytes / 4 >= (uint32_t)x->shape[3];
}

static void run(const nmp_custom_call *call) {
  const nmp_tensor *x = &call->inputs[0], *y = call->output;
  const size_t channels = (size_t)x->shape[3], pixels = (size_t)x->shape[1] * (size_t)x->shape[2];
  const int open = -1 - x->exponent, down = y->exponent - x->exponent + 15;
  int32_t *sums = (int32_t *)call->scratch; /* then the gates */
  for (size_t first = 0; first < x->size; first += pixels * channels) {
    for (size_t c = 0; c < channels; c++) {
      int64_t sum = 0;
      for (size_t i = 0; i < pixels; i++) {
        sum += load(x, first + i * channels + c);
      }
      const int64_t mean = round_divide(64 * sum, (int64_t)pixels);
      const int64_t gate = 16384 + round_shift(mean * call->attributes[0], open);
      sums[c] = (int32_t)(gate < 0 ? 0 : gate > 32768 ? 32768 : gate);
    }
    for (size_t i = 0; i < pixels * channels; i++) {
      store(y, first + i, round_shift((int64_t)load(x, first + i) * sums[i % channels], down));
    }
  }
}

const nmp_custom_op gate_op = {"samples.gate::Gate", check, run};
