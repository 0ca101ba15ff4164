"""Branches that no corpus takes, with the reason: files below interpreter/src, then the text where a branch begins.

Those of a macro have the line that expands it. A branch that is taken after all fails the test, as one does that is
neither taken nor here.
"""

ALL = "this build has all widths, ops, shapes of convolutions and words of faults; make firmware leaves some out"
FIXED = "this build has one CPU, fixed when it is compiled; tests/ops runs those that choose one, at every level"
TABLE = "these programs have no table of custom ops at run time; tests/ops/test_custom.py has"
ANY = "nmp_inspect_target takes any custom op, and is in no build with a fixed CPU"
SOUND = "no corpus has sound; tests/runtime/test_sound_frames.py breaks its rules one by one"
ROOM = "only a plan for two memories leaves room for weights; tests/runtime/test_two_memories.py has one"
HUGE = "it would take a file or packed weights of gigabytes"
BRANCHES: dict[str, dict[str, str]] = {
    "agent.c": {
        'never false: fault->what ? fault->what : "");': ALL,
    },
    "base/fb.c": {
        "never true: offset ? table + offset : NULL;": "builds for size alone call it",
        "never false: offset ? table + offset : NULL;": "builds for size alone call it",
        "never false: (at + 4) % width == 0 && *count <= (w->bytes - at - 4) / width;": (
            "vectors of 8 bytes an element would have to lie at a multiple of 8; the schema has none"
        ),
    },
    "core/model.c": {
        "never true: bytes > NMP_BYTES_MAX) {": HUGE,
        "never true: NMP_WIDE(bits) != (bits == 16)) {": ALL,
        "never false: kind < NMP_OP_TABLE ? nmp_op_table[kind] : NULL;": ALL,
        "never true: type == NULL) {": ALL,
        "never true: packed > NMP_BYTES_MAX - needs->packed) {": HUGE,
        "never true: fb_port_sound(fb_element(m->outputs, i)) != NULL) {": SOUND,
        "never true: rule.status) {": SOUND,
    },
    "ops/batch_matmul.c": {
        'never true: NMP_REQUIRE_BUILT(nmp_conv_knows_range(&p.conv), "a range of results", y->lo, y->hi);': ALL,
        "never true: matrices % threads == 0 || matrices > FEW * threads ? 1 : nmp_max(parts, FEW);": FIXED,
        "never false: matrices % threads == 0 || matrices > FEW * threads ? 1 : nmp_max(parts, FEW);": FIXED,
        "never true: matrices > FEW * threads ? 1 : nmp_max(parts, FEW);": FIXED,
        "never false: matrices > FEW * threads ? 1 : nmp_max(parts, FEW);": FIXED,
        "never false: b_at != *before) {": FIXED,
        "never false: c->h.out < PACKED_ROWS) {": FIXED,
        "never false: kernel->packed;": FIXED,
        "never false: op->threads->parallel ? nmp_max(op->threads->threads, 1) : 1;": FIXED,
        "never false: p->kernel->scratch ? nmp_round_up(p->kernel->scratch(c), p->unit) : 0);": FIXED,
        "never false: p->kernel->tasks;": FIXED,
        "never false: p->matrices * p->parts > 1) {": FIXED,
        "never true: NMP_REQUIRE_BUILT(NMP_WIDE_WEIGHT(b->bits) == (b"
        '->bits == 16), "bits of the weights in this build", b->bits,': ALL,
        "never true: NMP_REQUIRE_BUILT(a->shape[rank - 1] <= NMP_CONV"
        '_K_MAX, "products of a sum in this build", a->shape[rank - 1],': ALL,
        'never true: NMP_REQUIRE_BUILT(p.kernel != NULL, "a product that vectors do not compute", 0, 0);': ALL,
        "never true: NMP_TRY(nmp_check_shift(shift(op)));": "tests/hostile/test_op_rules.py breaks it",
        "never true: b_at != *before) {": FIXED,
        "never true: c->h.out < PACKED_ROWS) {": FIXED,
        "never true: kernel->packed;": FIXED,
        "never true: op->threads->parallel ? nmp_max(op->threads->threads, 1) : 1;": FIXED,
        "never true: p->kernel == NULL) {": ALL,
        "never true: p->kernel->tasks;": FIXED,
        "never true: p->matrices * p->parts > 1) {": FIXED,
        "never true: p.packed ? p.unit : 0) + p.zeros + workers_of(op) * p.worker;": FIXED,
        "never true: packs(p->kernel) && b_at != *before) {": FIXED,
        "never true: packs(p->kernel) && c->h.out < PACKED_ROWS) {": FIXED,
        "never true: packs(p->kernel) ? NMP_CACHE_LINE : 16;": FIXED,
        "never true: packs(p->kernel) ? nmp_round_up(p->kernel->packed(c), p->unit) : 0;": FIXED,
        "never true: workers_of(p->op) > 1 && p->matrices * p->parts > 1) {": FIXED,
    },
    "ops/common/broadcast.c": {
        "never false: !broadcast_short(op, &r.m, kernel, how)) {": FIXED,
    },
    "ops/common/check.c": {
        "never true: NMP_REQUIRE_BUILT(NMP_WIDE(op->in[i].bits) == (op->in[i].bits == 16), "
        '"bits of an input in this build",': ALL,
    },
    "ops/common/overlap.c": {
        "never true: last < (uint32_t)done       ? done": (
            "a band ends where its last line may, which is not before where the one in front of it ends; "
            "proofs/statements/overlaps.py asks for any `done`"
        ),
        "never false: kernel->scratch ? kernel->scratch(c) : 0;": "the portable kernel has scratch; others have none",
        "never true: legal && done < l.v.out && !found;) {": FIXED,
        "never false: legal && done < l.v.out && !found;) {": FIXED,
        "never true: done < l.v.out && !found;) {": FIXED,
        "never false: done < l.v.out && !found;) {": FIXED,
        "never true: !found;) {": FIXED,
        "never false: !found;) {": FIXED,
    },
    "ops/common/weighted.c": {
        "never true: scratch + bytes <= op->scratch_room) {": ROOM,
        "never true: NMP_REQUIRE_BUILT(NMP_WIDE_WEIGHT(w->bits) == (w->bits == 16), "
        '"bits of the weights in this build", w->bits,': ALL,
        'never true: NMP_REQUIRE_BUILT(nmp_conv_knows_range(c), "a range of results", c->lo, c->hi);': ALL,
        "never true: NMP_REQUIRE_BUILT(k <= NMP_CONV_K_MAX, "
        '"products of a sum in this build", k, NMP_CONV_K_MAX);': ALL,
        "never true: NMP_REQUIRE_BUILT(NMP_IN_USE(c->kernels).conv(c) != NULL, "
        '"a convolution that vectors do not compute", 0, 0);': ALL,
        "never true: op->type->conv == NULL) {": FIXED,
        "never false: op->type->conv == NULL) {": FIXED,
        "never false: call->kernel->scratch ? nmp_round_up(call->kernel->scratch(&call->conv), NMP_CACHE_LINE) : 0;": (
            "the portable kernel has scratch; others have none"
        ),
    },
    "ops/concat.c": {
        "never true: n < 32 && (op->placed >> n & 1);": FIXED,
        "never false: n < 32 && (op->placed >> n & 1);": FIXED,
        "never true: (op->placed >> n & 1);": FIXED,
        "never false: (op->placed >> n & 1);": FIXED,
        "never false: !is_placed(op, n)) {": FIXED,
    },
    "ops/conv2d.c": {
        "never true: NMP_REQUIRE_BUILT(nmp_conv_is_direct(&c) == nmp_conv_is_product(&c), "
        '"a convolution that is no product of pixels", 0,': ALL,
    },
    "ops/divide.c": {
        "never false: !divide_bytes(op, &how)) {": FIXED,
    },
    "ops/custom.c": {
        "never true: row && row->name; row++) {": TABLE,
        "never true: row->name; row++) {": TABLE,
        "never false: row->name; row++) {": TABLE,
        "never true: same(row->name, name)) {": TABLE,
        "never false: same(row->name, name)) {": TABLE,
        "never false: !any) {": ANY,
        "never false: row) {": ANY,
        "never false: row) { /* else nmp_create refused it */": "nmp_create refused it",
    },
    "ops/gather.c": {
        "never false: default:": FIXED,
        "never true: row <= SHORT_ROW) {": FIXED,
        "never true: GATHER_EACH(nmp_copy_bytes(y, x, row))": FIXED,
        "never false: GATHER_EACH(nmp_copy_bytes(y, x, row))": FIXED,
    },
    "ops/resize.c": {
        "never true: is_separable(op) ? run_lines : run_pixels, NULL);": FIXED,
    },
    "ops/softmax.c": {
        "never false: NMP_BY_1(NMP_IN_USE(op->kernels).exponentials, NMP_WIDE(x->bits))"
        "(e, nmp_at(x, first + i), table, count, most);": FIXED,
    },
}
# Conditions (MC/DC) that no input of these programs can decide alone, and why.
CONDITIONS = {
    "base/fb.c": (1, "vectors of 8 bytes an element would have to lie at a multiple of 8; the schema has none"),
    "core/model.c": (2, "a build for one width of activations refuses the other; this one is for both"),
}
