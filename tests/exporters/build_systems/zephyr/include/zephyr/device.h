/* In place of Zephyr's devices: there is one. */
#ifndef ZEPHYR_DEVICE_H
#define ZEPHYR_DEVICE_H

struct device {
  int unused;
};
static const struct device the_device;

#define DT_CHOSEN(name) 0
#define DEVICE_DT_GET(node) (&the_device + (node))

#endif
