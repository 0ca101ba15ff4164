#include "base/fb.h"

const uint8_t *fb_find_slot(const uint8_t *table, uint32_t slot) {
  const uint32_t offset = fb_offset(table, slot);
  return offset ? table + offset : NULL;
}

void fb_leading_ints(const uint8_t *table, const int8_t *missing, uint32_t count, int32_t *to) {
  const uint8_t *vtable = table - (int32_t)fb_load32(table);
  const uint32_t known = (fb_load16(vtable) - 4u) / 2;
  for (uint32_t i = 0; i < count; i++) {
    const uint32_t offset = i < known ? fb_load16(vtable + 4 + 2 * (size_t)i) : 0;
    to[i] = offset ? (int32_t)fb_load32(table + offset) : missing[i];
  }
}

/* Budget of the walk: what it may still look at, in units of 8 bytes. Every table, string and vector of an honest file
 * takes at least one (its own 4 bytes and the offset to it) and what it holds, so more of them than bytes / 8 share
 * memory, which could make the walk, or a reader of theirs, quadratic.
 */
typedef struct walk {
  const fb_schema *schema;
  const uint8_t *file;
  uint32_t bytes;
  uint32_t budget;
} walk;

static uint32_t fields_of(const walk *w, uint32_t number, const fb_field **fields) {
  const uint8_t *first = w->schema->first + number;
  *fields = w->schema->fields + first[0];
  return (uint32_t)first[1] - first[0];
}

static int inside(const walk *w, uint32_t at, uint32_t bytes) {
  return at <= w->bytes && bytes <= w->bytes - at;
}

/* Place that the offset at `at` leads to, or 0. Such places are 4-aligned and have 4 bytes. */
static uint32_t follow(const walk *w, uint32_t at) {
  uint32_t offset = fb_load32(w->file + at);
  if (offset == 0 || offset > w->bytes - at) {
    return 0;
  }
  at += offset;
  return at % 4 == 0 && inside(w, at, 4) ? at : 0;
}

static int spend(walk *w, uint32_t bytes) {
  const uint32_t units = 1 + bytes / 8;
  if (units > w->budget) {
    return 0;
  }
  w->budget -= units;
  return 1;
}

static int vector_inside(const walk *w, uint32_t at, uint32_t width, uint32_t *count) {
  *count = fb_load32(w->file + at);
  return (at + 4) % width == 0 && *count <= (w->bytes - at - 4) / width;
}

static int scalars_inside(walk *w, uint32_t at, uint32_t width) {
  uint32_t count;
  return vector_inside(w, at, width, &count) && spend(w, count * width);
}

static int string_inside(walk *w, uint32_t at) {
  uint32_t count;
  if (!vector_inside(w, at, 1, &count) || !spend(w, count)) {
    return 0;
  }
  at += 4 + count;
  return inside(w, at, 1) && w->file[at] == 0;
}

/* The table's own frame: vtable and every known field's bytes lie inside. */
static int frame_inside(const walk *w, uint32_t number, uint32_t at) {
  const fb_field *fields;
  const uint32_t count = fields_of(w, number, &fields);
  uint32_t vtable = at - fb_load32(w->file + at); /* wraps like the signed offset that it is */
  if (vtable % 2 != 0 || !inside(w, vtable, 4)) {
    return 0;
  }
  uint32_t vtable_bytes = fb_load16(w->file + vtable);
  uint32_t table_bytes = fb_load16(w->file + vtable + 2);
  if (vtable_bytes < 4 || vtable_bytes % 2 != 0 || !inside(w, vtable, vtable_bytes) || table_bytes < 4 ||
      !inside(w, at, table_bytes)) {
    return 0;
  }
  for (uint32_t i = 0; i < count; i++) {
    const fb_field *field = &fields[i];
    const uint32_t offset = fb_offset(w->file + at, i); /* not an address yet: it may lead out of the file */
    const uint32_t width = fb_kind(field) == FB_KIND_SCALAR ? field->arg : 4;
    if (offset == 0) {
      if (field->kind & FB_REQUIRED) {
        return 0;
      }
      continue;
    }
    if (offset < 4 || offset + width > table_bytes || (at + offset) % width != 0) {
      return 0;
    }
  }
  return 1;
}

static int table_inside(walk *w, uint32_t number, uint32_t at);

static int tables_inside(walk *w, uint32_t number, uint32_t at) {
  uint32_t count;
  if (!vector_inside(w, at, 4, &count)) {
    return 0;
  }
  for (uint32_t i = 0; i < count; i++) {
    uint32_t to = follow(w, at + 4 + 4 * i);
    if (to == 0 || !table_inside(w, number, to)) {
      return 0;
    }
  }
  return 1;
}

static int strings_inside(walk *w, uint32_t at) {
  uint32_t count;
  if (!vector_inside(w, at, 4, &count)) {
    return 0;
  }
  for (uint32_t i = 0; i < count; i++) {
    uint32_t to = follow(w, at + 4 + 4 * i);
    if (to == 0 || !string_inside(w, to)) {
      return 0;
    }
  }
  return 1;
}

static int field_inside(walk *w, const fb_field *field, uint32_t member, uint32_t at) {
  switch (fb_kind(field)) {
    case FB_KIND_STRING:
      return string_inside(w, at);
    case FB_KIND_TABLE:
      return table_inside(w, field->arg, at);
    case FB_KIND_UNION:
      return member > field->arg || table_inside(w, member - 1, at);
    case FB_KIND_VECTOR:
      return scalars_inside(w, at, field->arg);
    case FB_KIND_STRINGS:
      return strings_inside(w, at);
    default:
      return tables_inside(w, field->arg, at);
  }
}

/* The recursion is as deep as the schema, which the generator checks to be without loops. */
static int table_inside(walk *w, uint32_t number, uint32_t at) {
  const fb_field *fields;
  const uint32_t count = fields_of(w, number, &fields);
  if (!spend(w, 0) || !frame_inside(w, number, at)) {
    return 0;
  }
  const uint8_t *table = w->file + at;
  for (uint32_t i = 0; i < count; i++) {
    const fb_field *field = &fields[i];
    if (fb_kind(field) == FB_KIND_SCALAR) {
      continue;
    }
    const uint32_t offset = fb_offset(table, i);
    uint32_t member = 0;
    if (fb_kind(field) == FB_KIND_UNION) {
      member = fb_u8(table, i - 1, 0);
      if ((offset != 0) != (member != 0)) {
        return 0;
      }
    }
    if (offset != 0) {
      uint32_t to = follow(w, at + offset);
      if (to == 0 || !field_inside(w, field, member, to)) {
        return 0;
      }
    }
  }
  return 1;
}

int fb_verify_root(const fb_schema *schema, uint32_t root, const uint8_t *file, uint32_t bytes) {
  walk w = {.schema = schema, .file = file, .bytes = bytes, .budget = 1};
  uint32_t at = follow(&w, 0);
  return at != 0 && frame_inside(&w, root, at);
}

int fb_verify(const fb_schema *schema, uint32_t root, const uint8_t *file, uint32_t bytes) {
  walk w = {.schema = schema, .file = file, .bytes = bytes, .budget = bytes / 8};
  return table_inside(&w, root, follow(&w, 0));
}
