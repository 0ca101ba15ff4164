/* A plug-in of QEMU's user emulation: counts the instructions of a program. A call of getpgid(MARK) is a mark. At each
 * mark the plug-in prints, on stderr, what ran since the one before: how many instructions, and the blocks that have
 * most of them, with how often each ran and its instructions as hexadecimal bytes. Declared here is what it calls of
 * QEMU's plug-in interface, version 1 (qemu-plugin.h).
 */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
enum qemu_plugin_op { QEMU_PLUGIN_INLINE_ADD_U64 };

size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *block, size_t i);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *insn);
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *block, enum qemu_plugin_op op, void *counter,
                                              uint64_t n);
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id,
                                           void (*call)(qemu_plugin_id_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_syscall_cb(qemu_plugin_id_t id,
                                          void (*call)(qemu_plugin_id_t, unsigned vcpu, int64_t number, uint64_t,
                                                       uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                                                       uint64_t));

EXPORTED int qemu_plugin_version = 1;
EXPORTED int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc, char **argv);

#define GETPGID 155 /* of AArch64 */
#define MARK 0x6e6d70
#define HOTTEST 64
#define MOST (1u << 20)
#define INSN 4

typedef struct block {
  uint64_t times, insns;
  uint8_t code[];
} block;

static block *blocks[MOST];
static size_t count;

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb) {
  const size_t insns = qemu_plugin_tb_n_insns(tb);
  block *b = count < MOST ? calloc(1, sizeof(block) + insns * INSN) : NULL;
  (void)id;
  if (b == NULL) {
    fprintf(stderr, "too many blocks\n");
    exit(3);
  }
  b->insns = insns;
  for (size_t i = 0; i < insns; i++) {
    memcpy(b->code + i * INSN, qemu_plugin_insn_data(qemu_plugin_tb_get_insn(tb, i)), INSN);
  }
  blocks[count++] = b;
  qemu_plugin_register_vcpu_tb_exec_inline(tb, QEMU_PLUGIN_INLINE_ADD_U64, &b->times, 1);
}

static int hotter(const void *a, const void *b) {
  const block *first = *(block *const *)a, *second = *(block *const *)b;
  const uint64_t x = first->times * first->insns, y = second->times * second->insns;
  return x < y ? 1 : x > y ? -1 : 0;
}

static void called(qemu_plugin_id_t id, unsigned vcpu, int64_t number, uint64_t argument, uint64_t a2, uint64_t a3,
                   uint64_t a4, uint64_t a5, uint64_t a6, uint64_t a7, uint64_t a8) {
  uint64_t all = 0;
  (void)id, (void)vcpu, (void)a2, (void)a3, (void)a4, (void)a5, (void)a6, (void)a7, (void)a8;
  if (number != GETPGID || argument != MARK) {
    return;
  }
  for (size_t i = 0; i < count; i++) {
    all += blocks[i]->times * blocks[i]->insns;
  }
  fprintf(stderr, "mark %" PRIu64 "\n", all);
  qsort(blocks, count, sizeof(block *), hotter);
  for (size_t i = 0; i < count; i++) {
    if (i < HOTTEST && blocks[i]->times > 0) {
      fprintf(stderr, "block %" PRIu64 " ", blocks[i]->times);
      for (size_t k = 0; k < blocks[i]->insns * INSN; k++) {
        fprintf(stderr, "%02x", blocks[i]->code[k]);
      }
      fprintf(stderr, "\n");
    }
    blocks[i]->times = 0;
  }
}

int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc, char **argv) {
  (void)info, (void)argc, (void)argv;
  qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
  qemu_plugin_register_vcpu_syscall_cb(id, called);
  return 0;
}
