#include "kernels/portable.inc"
