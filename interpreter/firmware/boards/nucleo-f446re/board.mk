CROSS := arm-none-eabi-
PACKAGES := gcc-arm-none-eabi libnewlib-arm-none-eabi
CFLAGS += -mcpu=cortex-m4 -mthumb
LDFLAGS += --specs=nosys.specs
SOURCES += boards/common/cortex_m.c boards/nucleo-f446re/clocks.c boards/nucleo-f446re/usart.c
