/* Whole convolutions of the tested level against the portable one: random shapes, strides, paddings, dilations, groups,
 * widths, shifts and numbers of tasks. All that is read ends at a guard page.
 */
#include <stdio.h>
#include <string.h>

#include "arch/x86/level.h"
#include "base/fixed.h"
#include "check_kernels.h"
#include "conv/conv.h"
#include "conv/gemm/panel.h"

#define SHAPES 700

/* Products per ns of byte dot products that read no memory: what the level could reach. */
#ifdef NMP_X86
#define ROUNDS 1000000
#define ACCUMULATE(i, add, r) __asm__ volatile(add " %%" r "30, %%" r "31, %%" r #i::: "xmm" #i)
#define TEN(add, r)       \
  ACCUMULATE(20, add, r); \
  ACCUMULATE(21, add, r); \
  ACCUMULATE(22, add, r); \
  ACCUMULATE(23, add, r); \
  ACCUMULATE(24, add, r); \
  ACCUMULATE(25, add, r); \
  ACCUMULATE(26, add, r); \
  ACCUMULATE(27, add, r); \
  ACCUMULATE(28, add, r); \
  ACCUMULATE(29, add, r);

NMP_ISA_BEGIN(NMP_ISA_AVX512VNNI)
static double peak(void) {
  const double start = seconds();
  for (int i = 0; i < ROUNDS; i++) {
    TEN("vpdpbusd", "zmm")
  }
  return ROUNDS * 10 * 64 / (seconds() - start) * 1e-9;
}
NMP_ISA_END
#endif

static int32_t up_to(uint32_t n) {
  return (int32_t)(next_random() % n);
}

/* 1..n, often few, at times a multiple of 8. */
static uint32_t some(uint32_t n) {
  const uint32_t any = 1 + next_random() % n;
  switch (next_random() % 4) {
    case 0:
      return 1 + any % 4;
    case 1:
      return (any + 7) / 8 * 8;
    default:
      return any;
  }
}

/* kernel: 0 for any, often 1 */
static nmp_axis some_axis(int32_t most, int32_t kernel) {
  nmp_axis axis = {0, 1 + up_to((uint32_t)most), 1 + up_to(5), 1 + up_to(3), 1, 0, 0};
  if (kernel || up_to(3) == 0) {
    axis.kernel = kernel ? kernel : 1;
  }
  axis.dilation = 1 + (up_to(4) == 0);
  const int32_t reach = (axis.kernel - 1) * axis.dilation + 1, span = (axis.out - 1) * axis.stride + reach;
  axis.before = up_to((uint32_t)reach + 3); /* some windows lie in the padding */
  axis.in = span - axis.before - up_to((uint32_t)reach + 3) + up_to((uint32_t)axis.stride);
  axis.in = axis.in < 1 ? 1 : axis.in;
  axis.after = span > axis.in + axis.before ? span - axis.in - axis.before : 0;
  return axis;
}

static void fill_shape(nmp_conv *c) {
  const uint32_t kind = next_random() % 9;
  const int32_t kernel = (kind == 2 || kind == 3) && up_to(2) ? 3 : 0;
  c->v = some_axis(6, kernel);
  c->h = some_axis(kind == 0 ? 40 : kind == 3 ? 150 : 9, kernel); /* of a depthwise one, to be cut into column tiles */
  c->images = 1 + (next_random() % 4 == 0);
  c->groups = next_random() % 4 == 0 ? 1 + next_random() % 4 : 1;
  c->in = some(kind == 1 ? 300 : 40) * c->groups;
  c->out = some(72) * c->groups;
  if (kind == 2 || kind == 3) {
    c->groups = c->in = some(kind == 2 ? 300 : 60);
    c->out = c->groups * (uint32_t)(up_to(4) ? 1 : 1 + up_to(4));
  }
  if (kind >= 6) {
    c->v = (nmp_axis){1, 1, 1, 1, 1, 0, 0};
    c->h.out = up_to(4) ? c->h.out : 1 + up_to(800);
    c->h.in = c->h.out;
    c->h.kernel = c->h.stride = c->h.dilation = 1;
    c->h.before = c->h.after = 0;
  }
  if (kind == 8) { /* a pixel */
    c->h.in = c->h.out = 1;
    c->images = c->groups = 1;
    c->in = some(300);
    c->out = some(300);
  }
  c->k = (uint32_t)(c->v.kernel * c->h.kernel) * c->in / c->groups;
  c->pitch = c->out;
}

/* The shift is often near what brings a sum into y's range; some are absurd, and some biases just fit into a sum. */
static void fill_numbers(nmp_conv *c) {
  const int bits = 7 + 8 * c->x_wide + 7 + 8 * c->w_wide - (7 + 8 * c->y_wide) + (c->k > 16 ? 3 : 0);
  const int absurd = next_random() % 8 == 0, edge = next_random() % 8 == 0;
  int8_t *exponents = tail(SHIFTS, c->exponent_step ? c->out : 1);
  for (size_t i = 0; i < (c->exponent_step ? c->out : 1); i++) {
    const int around = bits - 2 + up_to(5), any = NMP_SHIFT_MIN + up_to(NMP_SHIFT_MAX - NMP_SHIFT_MIN + 1);
    const int shift = absurd ? any : around;
    exponents[i] = (int8_t)(c->shift - (shift < NMP_SHIFT_MIN ? NMP_SHIFT_MIN : shift));
  }
  c->exponents = exponents;
  int32_t *bias = tail(TABLE, c->out * 4);
  for (size_t i = 0; i < c->out; i++) {
    const int shift = nmp_conv_shift(c, i);
    const int32_t random = (int32_t)next_random(), room = INT32_MAX - (int32_t)(c->k * 128) * up_to(160);
    const int32_t tight = (up_to(2) ? room : -room) >> (shift > 0 ? shift : 0) % 31;
    bias[i] = edge ? tight : random >> (absurd ? up_to(32) : 24 - 8 * c->y_wide);
  }
  c->bias = bias;
  c->bias_bits = 32;
  c->lo = c->y_wide ? -32768 + up_to(2) * 32768 : -128 + up_to(2) * 128;
  c->hi = c->y_wide ? 32767 - up_to(2) * 999 : 127 - up_to(2) * 27;
}

static void *aligned(int slot, size_t bytes) {
  return tail(slot, (bytes + 63) / 64 * 64);
}

static const nmp_conv_kernel *prepare(nmp_conv *c, const nmp_kernels *kernels, void *y) {
  const nmp_conv_kernel *kernel = kernels->conv(c);
  void *packed = aligned(PACKED, kernel->packed ? kernel->packed(c) : 0);
  c->kernels = kernels;
  c->y = y;
  c->packed = packed;
  c->scratch = aligned(SCRATCH, kernel->scratch ? kernel->scratch(c) : 0);
  if (kernel->packed && kernel->packed(c) > 0) {
    kernel->pack(c, packed);
  }
  return kernel;
}

static void run(nmp_conv *c, const nmp_kernels *kernels, void *y, size_t threads) {
  const nmp_conv_kernel *kernel = prepare(c, kernels, y);
  const size_t tasks = kernel->tasks ? threads : 1;
  for (size_t task = tasks; task-- > 0;) {
    kernel->run(c, task, tasks);
  }
}

/* Some rows of y, against a convolution of these rows alone. */
static void check_rows(nmp_conv *c) {
  const int seen = nmp_pixel(&c->v, 0, c->v.kernel - 1) >= 0 && nmp_pixel(&c->v, c->v.out - 1, 0) < c->v.in;
  const int32_t first = up_to((uint32_t)c->v.out), last = first + 1 + up_to((uint32_t)(c->v.out - first));
  if (c->images > 1 || !seen || tested.conv(c)->rows == NULL) {
    return;
  }
  nmp_conv part = nmp_conv_rows(c, first, last);
  const size_t bytes = nmp_conv_pixels(&part) * c->out << c->y_wide;
  run(&part, &portable, poisoned(WANT, bytes), 1);
  prepare(c, &tested, poisoned(GOT, bytes))->rows(c, (size_t)first, (size_t)last);
  compare("rows of conv", c->x_wide * 4 + c->w_wide * 2 + c->y_wide, c->k, bytes);
}

/* Pixels of y with gaps, which stay as they are. */
static void check_pitch(nmp_conv *c) {
  const size_t pixels = nmp_conv_pixels(c), out = (size_t)c->out << c->y_wide;
  const nmp_conv dense = *c;
  if (!tested.conv(c)->pitched) {
    return;
  }
  c->pitch += some(40);
  const size_t pitch = (size_t)c->pitch << c->y_wide, bytes = (pixels - 1) * pitch + out;
  uint8_t *values = tail(GOT, bytes), *want = poisoned(WANT, bytes);
  nmp_conv other = dense;
  run(&other, &portable, values, 1);
  for (size_t i = 0; i < pixels; i++) {
    memcpy(want + i * pitch, values + i * out, out);
  }
  run(c, &tested, poisoned(GOT, bytes), (size_t)(1 + up_to(3)));
  compare("pitched conv", c->x_wide * 4 + c->w_wide * 2 + c->y_wide, c->k, bytes);
  c->pitch = c->out;
}

/* Sums with what y holds, of the kernels that add it. */
static void check_added(nmp_conv *c) {
  const size_t bytes = nmp_conv_pixels(c) * c->out << c->y_wide;
  c->kernels = &tested;
  c->adds = 1;
  if (!(c->x_wide | c->w_wide | c->y_wide) && !nmp_conv_is_depthwise(c) && tested.conv(c)->adds) {
    uint8_t *want = poisoned(WANT, bytes), *got = poisoned(GOT, bytes);
    for (size_t i = 0; i < bytes; i++) {
      want[i] = got[i] = (uint8_t)next_random();
    }
    run(c, &portable, want, 1);
    run(c, &tested, got, (size_t)(1 + up_to(3)));
    compare("conv with a sum", c->x_wide * 4 + c->w_wide * 2 + c->y_wide, c->k, bytes);
  }
  c->adds = 0;
}

/* Leaves about one weight of four, so that few of those that meet in one sum are extreme. */
static void thin(const nmp_conv *c, uint8_t *w) {
  for (size_t i = 0; i < (size_t)c->out * c->k; i++) {
    if (up_to(4) != 0) {
      memset(w + (i << c->w_wide), 0, (size_t)1 << c->w_wide);
    }
  }
}

static void check_conv(int fill) {
  nmp_conv c;
  memset(&c, 0, sizeof(c));
  fill_shape(&c);
  c.x_wide = (uint8_t)up_to(2);
  c.w_wide = up_to(4) == 0 ? !c.x_wide : c.x_wide;
  c.y_wide = (uint8_t)up_to(2);
  c.exponent_step = (uint32_t)up_to(2);
  c.shift = up_to(9) - 4;
  fill_numbers(&c);
  c.x = integers(A, (size_t)c.images * (size_t)c.v.in * (size_t)c.h.in * c.in, c.x_wide, fill);
  uint8_t *w = integers(B, (size_t)c.out * c.k, c.w_wide, up_to(3) == 0 ? LOWEST : fill);
  if (up_to(4) == 0) {
    thin(&c, w);
  }
  if (up_to(4) == 0) {
    memset(w + ((c.out / 2 * c.k) << c.w_wide), 0, (size_t)c.k << c.w_wide); /* a channel of biases */
    if (c.exponent_step) {
      ((int8_t *)tail(SHIFTS, c.out))[c.out / 2] = (int8_t)(c.shift - NMP_SHIFT_MAX);
    }
  }
  c.w = w;
  c.pad = up_to(2) ? integers(PAD, c.in, c.x_wide, fill) : NULL;
  const size_t bytes = nmp_conv_pixels(&c) * c.out << c.y_wide;
  run(&c, &portable, poisoned(WANT, bytes), 1);
  run(&c, &tested, poisoned(GOT, bytes), (size_t)(1 + up_to(3)));
  compare("conv", c.x_wide * 4 + c.w_wide * 2 + c.y_wide, c.k, bytes);
  check_rows(&c);
  check_pitch(&c);
  check_added(&c);
}

/* The int16 of those with extreme bytes whose product is farthest from that of the high bytes, up or down. */
static int16_t farthest(int32_t w, int up) {
  static const int16_t bytes[] = {-32768, -32641, -128, -1, 0, 127, 255, 32512, 32640, 32767};
  const int32_t high = (w + 128) >> 8 > INT8_MAX ? INT8_MAX : (w + 128) >> 8;
  int32_t most = INT32_MIN;
  int16_t found = 0;
  for (size_t i = 0; i < COUNT(bytes); i++) {
    const int32_t x = bytes[i], error = x * w - ((x >> 8) * 256 + 128) * 256 * high;
    if ((up ? error : -error) > most) {
      most = up ? error : -error;
      found = bytes[i];
    }
  }
  return found;
}

/* int16 times int16 in long sums of the largest errors that conv/gemm/split_words.h has to do with, all of one sign. */
static void check_errors(int i) {
  static const int16_t weights[] = {32767, -32768, 32640, 32639, -32641, 128, -129, 16384, 0, -32640};
  nmp_conv c;
  memset(&c, 0, sizeof(c));
  c.v = (nmp_axis){1, 1, 1, 1, 1, 0, 0};
  c.h = (nmp_axis){9, 9, 1, 1, 1, 0, 0};
  c.images = c.groups = 1;
  c.in = c.k = 4 * (uint32_t)(1 + up_to(i % 4 == 0 ? 2000 : 90));
  c.out = c.pitch = some(40);
  c.x_wide = c.w_wide = 1;
  c.y_wide = (uint8_t)up_to(2);
  fill_numbers(&c);
  if (i % 8 > 0) {
    *(int8_t *)tail(SHIFTS, 1) = (int8_t)(c.shift - 24 - up_to(8)); /* nothing saturates */
  }
  int16_t *w = integers(B, (size_t)c.out * c.k, 1, RANDOM), *x = integers(A, 9 * c.k, 1, RANDOM);
  for (size_t k = 0; i % 2 && k < (size_t)c.out * c.k; k++) {
    w[k] = weights[(k / c.k + (size_t)i) % COUNT(weights)];
  }
  for (size_t k = 0; k < 8 * c.k; k++) {
    const size_t pixel = k / c.k, channel = pixel / 2 % c.out;
    x[k] = farthest(w[channel * c.k + k % c.k], pixel % 2 == 0);
  }
  c.x = x;
  c.w = w;
  const size_t bytes = nmp_conv_pixels(&c) * c.out << c.y_wide;
  run(&c, &portable, poisoned(WANT, bytes), 1);
  run(&c, &tested, poisoned(GOT, bytes), 1);
  compare("conv of far products", c.y_wide, c.k, bytes);
}

/* Bytes, 3 x 3: the products of three or of four of one sign just fit into 16 bits, but at one place may be more. */
static void check_crowd(int i) {
  static const int8_t exponent = 0;
  const int depthwise = i % 2;
  nmp_conv c;
  memset(&c, 0, sizeof(c));
  c.v = c.h = (nmp_axis){6, 4, 3, 1, 1, 0, 0};
  c.images = 1;
  c.in = c.out = c.pitch = 8 * (uint32_t)(1 + up_to(6));
  c.groups = depthwise ? c.in : 1;
  c.k = 9 * c.in / c.groups;
  c.exponents = &exponent;
  c.shift = depthwise ? 10 : 15;
  c.bias_bits = 8;
  c.bias = memset(tail(TABLE, c.out), 0, c.out);
  c.lo = -128;
  c.hi = 127;
  int8_t *w = integers(B, (size_t)c.out * c.k, 0, RANDOM);
  memset(w, depthwise ? -255 / 3 : -255 / 4, (size_t)c.out * c.k);
  w[up_to(c.out * c.k)] -= (int8_t)up_to(5);
  c.w = w;
  c.x = memset(integers(A, 36 * c.in, 0, RANDOM), INT8_MIN, 36 * c.in);
  const size_t bytes = nmp_conv_pixels(&c) * c.out;
  run(&c, &portable, poisoned(WANT, bytes), 1);
  run(&c, &tested, poisoned(GOT, bytes), 1);
  compare("conv of products that just fit", depthwise, c.k, bytes);
}

#ifdef NMP_HAS_GEMM
/* Weight k of a segment of one lane, where panel.c says that it lies. */
static int16_t packed_weight(const nmp_gemm_product *p, const nmp_gemm_shape *s, const uint8_t *segment, size_t step,
                             size_t lane, size_t k) {
  const size_t unit = p->k_group, byte = k * p->element, group = byte / unit;
  const uint8_t *at = segment + group * step + lane * unit + byte % unit;
  if (p->bytes) {
    at = segment + group * step + lane / 4 * 32 + lane % 4 * 4 + byte % unit;
    return (int16_t)((int8_t)at[0] * 256 + (int8_t)at[16]);
  }
  if (p->pairs && (group | 1) < s->k_groups) {
    at = segment + (group & ~(size_t)1) * step + lane * 2 * unit + byte % (2 * unit);
  }
  int16_t w = 0;
  memcpy(&w, at, p->element);
  return p->element == 1 ? (int8_t)w : w;
}

/* Layouts of weights, also those that no kernel of this CPU reads: pairs of k-groups, and bytes that are split. */
static void check_packed(int i) {
  static const int8_t exponent = 0;
  const int bytes = i % 3 == 0, wide = bytes || i % 2;
  const nmp_gemm_product p = {.element = (uint8_t)(1 + (wide && !bytes)),
                              .planes = (uint8_t)(1 + bytes),
                              .bytes = (uint8_t)bytes,
                              .pairs = !bytes,
                              .lanes = 4,
                              .k_group = bytes ? 4 : 8};
  nmp_conv c;
  memset(&c, 0, sizeof(c));
  c.v = (nmp_axis){3, 1, 3, 1, 1, 0, 0};
  c.h = nmp_axis_of_pixels(2);
  c.images = c.groups = 1;
  c.in = some(300);
  c.out = c.pitch = 1 + (uint32_t)up_to(8);
  c.k = 3 * c.in;
  c.x_wide = c.w_wide = (uint8_t)wide;
  c.exponents = &exponent;
  c.bias_bits = 8;
  c.bias = memset(tail(TABLE, c.out), 0, c.out);
  c.w = integers(B, (size_t)c.out * c.k, wide, RANDOM);
  const nmp_gemm_shape s = nmp_gemm_shape_of(&c, &p);
  const size_t vectors = (c.out + 3) / 4, step = vectors * 4 * p.k_group * (bytes ? 2 : 1), n = (size_t)c.out * c.k;
  nmp_gemm_panel *panel = aligned(PACKED, s.panel_bytes);
  nmp_gemm_pack_panel(&c, &p, &s, 0, c.out, vectors, panel);
  int16_t *want = poisoned(WANT, n * 2), *got = poisoned(GOT, n * 2);
  for (size_t at = 0; at < n; at++) {
    const uint8_t *segment = (const uint8_t *)(panel + 1) + at % c.k / c.in * s.k_groups * step;
    want[at] = (int16_t)(wide ? ((const int16_t *)c.w)[at] : ((const int8_t *)c.w)[at]);
    if (bytes && want[at] >= 127 * 256 + 128) { /* a panel tells of them as `highest` */
      want[at] = (int16_t)(want[at] - 65536);
    }
    got[at] = packed_weight(&p, &s, segment, step, at / c.k, at % c.in);
  }
  compare("packed weights", bytes * 2 + wide, c.k, n * 2);
}
#endif

/* Products per ns of layers like those of MobileNets, ResNets and classifiers. */
static void bench_conv(int32_t side, uint32_t in, uint32_t out, int32_t kernel, int32_t stride, int depthwise,
                       int wide) {
  static const int8_t exponent = 0;
  nmp_conv c;
  memset(&c, 0, sizeof(c));
  const int32_t before = kernel / 2, rows = (side + stride - 1) / stride;
  c.v = c.h = (nmp_axis){side, rows, kernel, stride, 1, before, before};
  c.images = 1;
  c.groups = depthwise ? in : 1;
  c.in = in;
  c.out = c.pitch = out;
  c.k = (uint32_t)(kernel * kernel) * in / c.groups;
  c.x_wide = c.w_wide = c.y_wide = (uint8_t)wide;
  c.exponents = &exponent;
  c.shift = wide ? 19 : 11;
  c.bias_bits = 8;
  c.bias = integers(TABLE, out, 0, RANDOM);
  c.lo = wide ? -32768 : -128;
  c.hi = -c.lo - 1;
  c.x = integers(A, (size_t)side * (size_t)side * in, wide, RANDOM);
  c.w = integers(B, (size_t)out * c.k, wide, RANDOM);
  void *y = poisoned(GOT, nmp_conv_pixels(&c) * out << wide);
  run(&c, &tested, y, 1);
  const nmp_conv_kernel *kernels = tested.conv(&c);
  double best = 1, begin = seconds();
  for (double now = begin; now - begin < 0.05;) {
    const double start = now;
    kernels->run(&c, 0, 1);
    now = seconds();
    best = now - start < best ? now - start : best;
  }
  printf("%-10s conv %3d x %3d x %4u, %d x %d to %4u, stride %d, %s, int%-2d  %8.1f /ns\n", level, side, side, in,
         kernel, kernel, out, stride, depthwise ? "depthwise" : "dense", wide ? 16 : 8,
         (double)nmp_conv_pixels(&c) * out * c.k / best * 1e-9);
}

void check_convs(void) {
  static const struct {
    int32_t side;
    uint32_t in, out;
    int32_t kernel, stride, depthwise;
  } layers[] = {{112, 3, 32, 3, 2, 0},  {112, 32, 16, 1, 1, 0},  {56, 24, 144, 1, 1, 0},  {56, 144, 24, 1, 1, 0},
                {56, 64, 64, 3, 1, 0},  {14, 64, 384, 1, 1, 0},  {14, 384, 64, 1, 1, 0},  {14, 256, 256, 3, 1, 0},
                {7, 960, 160, 1, 1, 0}, {7, 160, 960, 1, 1, 0},  {32, 16, 16, 3, 1, 0},   {1, 1024, 1000, 1, 1, 0},
                {112, 32, 32, 3, 1, 1}, {56, 144, 144, 3, 1, 1}, {14, 384, 384, 3, 1, 1}, {48, 8, 8, 3, 1, 1},
                {112, 96, 96, 3, 2, 1}, {24, 16, 16, 3, 2, 1},   {14, 120, 120, 5, 1, 1}};
#ifdef NMP_X86
  if (benchmark && strcmp(level, "avx512vnni") == 0) {
    printf("%-10s int8 products of registers  %8.1f /ns\n", level, peak());
  }
#endif
  for (size_t i = 0; benchmark && i < COUNT(layers); i++) {
    for (int wide = 0; wide < 2; wide++) {
      bench_conv(layers[i].side, layers[i].in, layers[i].out, layers[i].kernel, layers[i].stride, layers[i].depthwise,
                 wide);
    }
  }
  for (int i = 0; !benchmark && i < SHAPES; i++) {
    check_conv(i % 8 < FILLS ? i % 8 : RANDOM);
    check_errors(i);
    check_crowd(i);
#ifdef NMP_HAS_GEMM
    check_packed(i);
#endif
  }
}
