CROSS := xtensa-lx106-elf-
PACKAGES := gcc-xtensa-lx106 picolibc-xtensa-lx106-elf
# Debian's compiler does not look for it there.
CFLAGS += -mlongcalls --specs=/usr/lib/xtensa-lx106-elf/picolibc.specs
SOURCES += boards/lx60/board.c boards/common/start.c boards/lx60/arithmetic.c
