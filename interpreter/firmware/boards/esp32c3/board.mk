CROSS := riscv64-unknown-elf-
PACKAGES := gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf
CFLAGS += -march=rv32imc -mabi=ilp32 -misa-spec=2.2 -mcmodel=medany --specs=picolibc.specs
SOURCES += boards/esp32c3/board.c boards/common/start.c
