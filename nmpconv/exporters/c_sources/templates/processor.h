#if defined(__XTENSA__)
#define PROCESSOR "Xtensa"
#elif defined(__riscv)
#define PROCESSOR "RISC-V"
#elif defined(__ARM_FEATURE_MVE)
#define PROCESSOR "Cortex-M with vectors"
#elif defined(__ARM_FEATURE_DSP)
#define PROCESSOR "Cortex-M with DSP"
#elif defined(__ARM_ARCH) && __ARM_ARCH_PROFILE == 'M'
#define PROCESSOR "Cortex-M"
#else
#define PROCESSOR "another processor"
#endif
