CROSS :=
PACKAGES := gcc
SOURCES += boards/host/board.c
HOSTED := yes
# Portable kernels: a board has one level, and those of PCs take half a minute to compile.
DEFINES += -DNMP_FIXED_CPU=1
