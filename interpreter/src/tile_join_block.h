/* The blocks of conv_join.h, after tile_block.h and tile_join.h. They have JOIN_RUNS. */

/* Adds a grain of each pixel, and goes on to the next. */
INLINE void join_grain_of_runs(V *high, V *low, const uint8_t *(*x)[2], size_t step, size_t three, const uint8_t *w,
                               const int per, const int vectors) {
  UNROLL for (int part = 0; part < 3; part++) {
    V factors[2], *sums = part < 2 ? low : high;
    UNROLL for (int v = 0; v < vectors; v++) {
      factors[v] = LOAD(w + (part * vectors + v) * (int)sizeof(V));
    }
    UNROLL for (int r = 0; r < JOIN_RUNS * per; r++) {
      const V grain = grain_of(pixel_of(x[r / per], step, three, r % per) + part * 4);
      UNROLL for (int v = 0; v < vectors; v++) {
        V *sum = &sums[r * vectors + v];
        *sum = part < 2 ? DOT_WORDS(*sum, grain, factors[v]) : DOT_BYTES(*sum, grain, factors[v]);
        KEEP(*sum);
      }
    }
  }
  UNROLL for (int i = 0; i < 4; i++) {
    x[i / 2][i % 2] += NMP_JOIN_GRAIN;
    __asm__("" : "+r"(x[i / 2][i % 2])); /* not a pointer for each pixel */
  }
}

/* A block's sums as they are shifted at last. Returns how far weights are fetched. */
INLINE uintptr_t join_sums_of_runs(V *sums, const nmp_block *b, uintptr_t next, const int per, const int vectors) {
  const int count = JOIN_RUNS * per * vectors;
  const size_t step = b->x_step, three = 3 * step;
  V high[NMP_BLOCK_VECTORS], low[NMP_BLOCK_VECTORS];
  const uint8_t *w = join_start(high, low, b->panel, count, vectors);
  size_t room = NMP_JOIN_GRAINS;
  for (size_t s = 0; s < b->segment_count; s++) {
    const uint8_t *first = b->x[0] + b->segments[s], *second = b->x[1] + b->segments[s];
    const uint8_t *x[2][2] = {{first, first + 4 * step}, {second, second + 4 * step}};
    for (size_t left = b->grains, n; left > 0; left -= n, room -= n) {
      if (room == 0) {
        w = join_again(high, low, w, count, vectors);
        room = NMP_JOIN_GRAINS;
      }
      n = left < room ? left : room;
      for (size_t i = n; i > 0; i--, w += vectors * NMP_JOIN_GRAIN * LANES) {
        join_grain_of_runs(high, low, x, step, three, w, per, vectors);
        if (vectors == 2) {
          _mm_prefetch((const void *)next, _MM_HINT_T1);
          next += b->next_step;
        }
      }
    }
  }
  UNROLL for (int i = 0; i < count; i++) {
    sums[i] = join_end(high[i], low[i], b->panel->unit + i % vectors * LANES);
  }
  return next;
}

INLINE void join_blocks_of(const nmp_block *blocks, const int per, const int vectors) {
  nmp_block b = *blocks;
  for (; b.count > 0; b.count--) {
    V sums[NMP_BLOCK_VECTORS];
    b.next = join_sums_of_runs(sums, &b, b.next, per, vectors);
    finish_block(&b, sums, JOIN_RUNS * per, per, vectors);
    UNROLL for (int i = 0; i < 2; i++) {
      b.x[i] += b.x_hop;
      b.y[i] += b.y_hop;
    }
  }
}

#define JOIN_BLOCK(name, per, vectors)                       \
  static void name##_##per##_##vectors(const nmp_block *b) { \
    join_blocks_of(b, per, vectors);                         \
  }
#define JOIN_BLOCK_NAME(name, per, vectors) name##_##per##_##vectors,

/* `join_blocks`, of at most ONE or TWO pixels in a run */
#define JOIN_BLOCKS(ONE, TWO)                                                                               \
  BLOCKS_##ONE(JOIN_BLOCK, join_block, 1)                                                                   \
      BLOCKS_##TWO(JOIN_BLOCK, join_block, 2) static const nmp_blocks join_blocks = {                       \
          {ONE, TWO},                                                                                       \
          {{BLOCKS_##ONE(JOIN_BLOCK_NAME, join_block, 1)}, {BLOCKS_##TWO(JOIN_BLOCK_NAME, join_block, 2)}}, \
          JOIN_RUNS};
