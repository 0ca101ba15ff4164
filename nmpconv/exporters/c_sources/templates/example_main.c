
#ifdef ESP_PLATFORM /* ESP-IDF has no main */
void app_main(void) {
  example();
}
#else
int main(void) {
  return example();
}
#endif
