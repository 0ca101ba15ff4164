/* In place of what ESP-IDF writes for a project. */
#define CONFIG_IDF_TARGET "esp32"
#define CONFIG_ESP_DEFAULT_CPU_FREQ_MHZ 160
