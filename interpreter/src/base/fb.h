/* FlatBuffers without a library: one verifier that walks generated descriptors, and accessors for verified files.
 *
 * The accessors check nothing; they may be used on the root table after fb_verify_root and on everything after
 * fb_verify. All that they load is aligned: the file is, and the verifier demands it of every offset in it.
 */
#ifndef NMP_BASE_FB_H
#define NMP_BASE_FB_H

#include <stddef.h>
#include <stdint.h>

enum { FB_KIND_SCALAR, FB_KIND_STRING, FB_KIND_TABLE, FB_KIND_UNION, FB_KIND_VECTOR, FB_KIND_STRINGS, FB_KIND_TABLES };

#define FB_REQUIRED 0x80 /* added to the kind of a field that has to be there */

/* arg: bytes of a scalar or of a vector's element; number of a table; count of a union's members, which are the first
 * tables. A union's type is the scalar in the slot before it.
 */
typedef struct fb_field {
  uint8_t kind, arg;
} fb_field;

static inline uint8_t fb_kind(const fb_field *field) {
  return field->kind & (FB_REQUIRED - 1);
}

/* The fields of all tables; those of table i are [first[i], first[i + 1]). */
typedef struct fb_schema {
  const fb_field *fields;
  const uint8_t *first;
} fb_schema;

typedef struct fb_vector {
  const uint8_t *data;
  uint32_t count;
} fb_vector;

/* True when the root table and its scalars lie within the file. 4 <= bytes < 2^31. */
int fb_verify_root(const fb_schema *schema, uint32_t root, const uint8_t *file, uint32_t bytes);

/* After fb_verify_root: true when everything the schema knows lies within the file, aligned, and strings end in NUL. A
 * union member that the schema does not know is not looked into. Takes time in proportion to bytes: objects that share
 * memory run out of budget.
 */
int fb_verify(const fb_schema *schema, uint32_t root, const uint8_t *file, uint32_t bytes);

/* Bytes are put together by hand, of which compilers make a load, but not for CPUs that load aligned words only. */
#if defined(__GNUC__) && \
    (defined(__riscv) || defined(__XTENSA__) || (defined(__arm__) && !defined(__ARM_FEATURE_UNALIGNED)))
static inline uint16_t fb_load16(const uint8_t *p) {
  uint16_t half;
  __builtin_memcpy(&half, __builtin_assume_aligned(p, sizeof(half)), sizeof(half));
  return half;
}

static inline uint32_t fb_load32(const uint8_t *p) {
  uint32_t word;
  __builtin_memcpy(&word, __builtin_assume_aligned(p, sizeof(word)), sizeof(word));
  return word;
}
#else
static inline uint16_t fb_load16(const uint8_t *p) {
  return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t fb_load32(const uint8_t *p) {
  return (uint32_t)fb_load16(p) | (uint32_t)fb_load16(p + 2) << 16;
}
#endif

static inline const uint8_t *fb_root(const uint8_t *file) {
  return file + fb_load32(file);
}

/* Bytes from a table to its field, 0 when it is absent. */
static inline uint32_t fb_offset(const uint8_t *table, uint32_t slot) {
  const uint8_t *vtable = table - (int32_t)fb_load32(table);
  uint32_t at = 4 + 2 * slot;
  return at < fb_load16(vtable) ? fb_load16(vtable + at) : 0;
}

const uint8_t *fb_find_slot(const uint8_t *table, uint32_t slot);

/* Place of the field in its table, NULL when it is absent. A call where code is to be small. */
static inline const uint8_t *fb_slot(const uint8_t *table, uint32_t slot) {
#ifdef __OPTIMIZE_SIZE__
  return fb_find_slot(table, slot);
#else
  uint32_t offset = fb_offset(table, slot);
  return offset ? table + offset : NULL;
#endif
}

static inline uint8_t fb_u8(const uint8_t *table, uint32_t slot, uint8_t missing) {
  const uint8_t *p = fb_slot(table, slot);
  return p ? *p : missing;
}

static inline uint8_t fb_bool(const uint8_t *table, uint32_t slot, uint8_t missing) {
  return fb_u8(table, slot, missing) != 0;
}

static inline int8_t fb_i8(const uint8_t *table, uint32_t slot, int8_t missing) {
  return (int8_t)fb_u8(table, slot, (uint8_t)missing);
}

static inline uint16_t fb_u16(const uint8_t *table, uint32_t slot, uint16_t missing) {
  const uint8_t *p = fb_slot(table, slot);
  return p ? fb_load16(p) : missing;
}

static inline uint32_t fb_u32(const uint8_t *table, uint32_t slot, uint32_t missing) {
  const uint8_t *p = fb_slot(table, slot);
  return p ? fb_load32(p) : missing;
}

static inline int32_t fb_i32(const uint8_t *table, uint32_t slot, int32_t missing) {
  return (int32_t)fb_u32(table, slot, (uint32_t)missing);
}

/* The first fields of a table, all int32: slots 0 to count - 1. missing: what they are when they are absent. */
void fb_leading_ints(const uint8_t *table, const int8_t *missing, uint32_t count, int32_t *to);

static inline uint64_t fb_u64(const uint8_t *table, uint32_t slot, uint64_t missing) {
  const uint8_t *p = fb_slot(table, slot);
  return p ? (uint64_t)fb_load32(p) | (uint64_t)fb_load32(p + 4) << 32 : missing;
}

/* Target of a field or of a vector's element. */
static inline const uint8_t *fb_follow(const uint8_t *p) {
  return p + fb_load32(p);
}

static inline const uint8_t *fb_table(const uint8_t *table, uint32_t slot) {
  const uint8_t *p = fb_slot(table, slot);
  return p ? fb_follow(p) : NULL;
}

static inline fb_vector fb_get_vector(const uint8_t *table, uint32_t slot) {
  const uint8_t *p = fb_table(table, slot);
  fb_vector v = {NULL, 0};
  if (p) {
    v.data = p + 4;
    v.count = fb_load32(p);
  }
  return v;
}

static inline const char *fb_string(const uint8_t *table, uint32_t slot) {
  return (const char *)fb_get_vector(table, slot).data;
}

/* Target of a field that the schema requires: a verified table has it. */
static inline const uint8_t *fb_required(const uint8_t *table, uint32_t slot) {
  const uint8_t *vtable = table - (int32_t)fb_load32(table);
  return fb_follow(table + fb_load16(vtable + 4 + 2 * (size_t)slot));
}

static inline fb_vector fb_required_vector(const uint8_t *table, uint32_t slot) {
  const uint8_t *p = fb_required(table, slot);
  return (fb_vector){p + 4, fb_load32(p)};
}

static inline const uint8_t *fb_element(fb_vector v, uint32_t i) {
  return fb_follow(v.data + 4 * (size_t)i);
}

static inline int32_t fb_int_element(fb_vector v, uint32_t i) {
  return (int32_t)fb_load32(v.data + 4 * (size_t)i);
}

/* A vector of ints in place; the file is 16-byte aligned and the verifier checked the vector's place in it. */
static inline const int32_t *fb_ints(const uint8_t *table, uint32_t slot, uint32_t *count) {
  fb_vector v = fb_get_vector(table, slot);
  *count = v.count;
  return (const int32_t *)(const void *)v.data;
}

#endif
