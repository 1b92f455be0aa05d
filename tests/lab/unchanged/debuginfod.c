// In place of libdebuginfod, which asks servers in the network. This one says that it was asked.
#include <stdlib.h>
#include <unistd.h>

void* debuginfod_begin(void) {
  static const char kAsked[] = "the network was asked\n";
  if (write(1, kAsked, sizeof kAsked - 1) < 0) abort();
  return NULL;
}
int debuginfod_find_debuginfo(void* client, const unsigned char* id, int size, char** path) {
  (void)client, (void)id, (void)size, (void)path;
  return -2;
}
int debuginfod_find_executable(void* client, const unsigned char* id, int size, char** path) {
  return debuginfod_find_debuginfo(client, id, size, path);
}
void debuginfod_end(void* client) { (void)client; }
