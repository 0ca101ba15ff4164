CROSS := arm-none-eabi-
PACKAGES := gcc-arm-none-eabi libnewlib-arm-none-eabi
CFLAGS += -mcpu=cortex-m55 -mthumb -mfloat-abi=hard
LDFLAGS += --specs=nosys.specs
SOURCES += boards/common/cortex_m.c boards/common/cmsdk_uart.c
