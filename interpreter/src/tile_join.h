/* The tiles of conv_join.h: what tile_x86.h needs, and
 *
 *   SUB(a, b)
 *   SLL16(a), SRA16(a)           each lane by 16
 *   SLLV(a, by), SRAV(a, by)     each lane by its own
 *   STORE_WIDE(p, high, d)       int64 p[LANES] = 2^16 high + d
 */
#include "conv_join.h"

/* acc is [pixel][vector], first of high, then of low sums. */
INLINE void join_grain(V *high, V *low, const nmp_tile *t, size_t offset, const uint8_t *w, const int rows,
                       const int vectors) {
  UNROLL for (int part = 0; part < 3; part++) {
    V factors[2];
    UNROLL for (int v = 0; v < vectors; v++) {
      factors[v] = LOAD(w + (part * vectors + v) * (int)sizeof(V));
    }
    UNROLL for (int r = 0; r < rows; r++) {
      const V x = grain_of(t->x[r] + offset + part * 4);
      UNROLL for (int v = 0; v < vectors; v++) {
        V *sum = part < 2 ? &low[r * vectors + v] : &high[r * vectors + v];
        *sum = part < 2 ? DOT_WORDS(*sum, x, factors[v]) : DOT_BYTES(*sum, x, factors[v]);
        KEEP(*sum);
      }
    }
  }
}

/* The difference of S to 2^16 high. */
INLINE V rest_of(V high, V low) {
  return SUB(low, SLL16(high));
}

/* Both sums before any product; returns where the products' weights are. */
INLINE const uint8_t *join_start(V *high, V *low, const nmp_panel *panel, const int count, const int vectors) {
  const uint8_t *w = (const uint8_t *)(panel + 1);
  UNROLL for (int i = 0; i < count; i++) {
    low[i] = LOAD(panel->start + i % vectors * LANES);
    high[i] = LOAD(w + i % vectors * (int)sizeof(V));
  }
  return w + vectors * (int)sizeof(V);
}

/* Both for further products. */
INLINE const uint8_t *join_again(V *high, const V *low, const uint8_t *w, const int count, const int vectors) {
  UNROLL for (int i = 0; i < count; i++) {
    high[i] = ADD(ADD(high[i], SRA16(rest_of(high[i], low[i]))), LOAD(w + i % vectors * (int)sizeof(V)));
  }
  return w + vectors * (int)sizeof(V);
}

/* floor(S / 2^unit) */
INLINE V join_end(V high, V low, const int32_t *units) {
  const V unit = LOAD(units);
  return ADD(SLLV(high, SUB(BROADCAST(16), unit)), SRAV(rest_of(high, low), unit));
}

INLINE void join_sums(V *high, V *low, const nmp_tile *t, const int rows, const int vectors) {
  const uint8_t *w = join_start(high, low, t->panel, rows * vectors, vectors);
  const size_t step = (size_t)vectors * NMP_JOIN_GRAIN * LANES;
  size_t room = NMP_JOIN_GRAINS;
  for (size_t s = 0; s < t->segment_count; s++) {
    size_t offset = t->segments[s];
    for (size_t done = 0, n; done < t->grains; done += n, room -= n) {
      if (room == 0) {
        w = join_again(high, low, w, rows * vectors, vectors);
        room = NMP_JOIN_GRAINS;
      }
      n = t->grains - done < room ? t->grains - done : room;
      for (size_t i = 0; i < n; i++, w += step, offset += NMP_JOIN_GRAIN) {
        join_grain(high, low, t, offset, w, rows, vectors);
      }
    }
  }
}

INLINE void joined(nmp_tile *t, const int rows, const int vectors) {
  V high[NMP_ROWS_MAX], low[NMP_ROWS_MAX];
  join_sums(high, low, t, rows, vectors);
  UNROLL for (int i = 0; i < rows * vectors; i++) {
    STORE(t->sums + i * LANES, join_end(high[i], low[i], t->panel->unit + i % vectors * LANES));
  }
}

INLINE void wide_joined(nmp_tile *t, const int rows, const int vectors) {
  V high[NMP_ROWS_MAX], low[NMP_ROWS_MAX];
  join_sums(high, low, t, rows, vectors);
  UNROLL for (int i = 0; i < rows * vectors; i++) {
    int32_t highs[LANES], rests[LANES];
    STORE(highs, high[i]);
    STORE(rests, rest_of(high[i], low[i]));
    memset(t->wide + i * LANES, 0, LANES * sizeof(t->wide[0]));
    add_sums(t->wide + i * LANES, highs, 16);
    add_sums(t->wide + i * LANES, rests, 0);
  }
}

#define JOIN_PRODUCT(FEW, join_blocks)                                                                           \
  static const nmp_product join_product = {NMP_JOIN_ELEMENT,                                                     \
                                           1,                                                                    \
                                           0,                                                                    \
                                           LANES,                                                                \
                                           NMP_JOIN_GRAIN,                                                       \
                                           load_join,                                                            \
                                           {{FEW, wide_joined_tiles, finish_wide}, {FEW, joined_tiles, finish}}, \
                                           join_blocks,                                                          \
                                           NULL,                                                                 \
                                           0};                                                                   \
  NMP_BANDS_KERNEL(join)
