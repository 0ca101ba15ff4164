CROSS :=
PACKAGES := gcc
SOURCES += boards/host/board.c
HOSTED := yes
