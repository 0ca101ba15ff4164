CROSS := arm-none-eabi-
PACKAGES := gcc-arm-none-eabi libnewlib-arm-none-eabi
CFLAGS += -mcpu=cortex-m33 -mthumb
LDFLAGS += --specs=nosys.specs
SOURCES += boards/common/cortex_m.c boards/common/rp2.c boards/pico2/image_definition.c
