/* Preloaded into a program: as soon as it has looked at a file named $WEFT_TEST_SWAP_NAME by
 * fstatat(), the file $WEFT_TEST_SWAP_FROM takes that name. So a race that lasts for a microsecond
 * is lost each time.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((visibility("default"))) int fstatat(int folder, const char* name, struct stat* out,
                                                   int flags) {
  const int result = (int)syscall(SYS_newfstatat, folder, name, out, flags);
  const char* wanted = getenv("WEFT_TEST_SWAP_NAME");
  const char* from = getenv("WEFT_TEST_SWAP_FROM");
  if (result == 0 && wanted != NULL && from != NULL && strcmp(name, wanted) == 0) {
    if (renameat(AT_FDCWD, from, folder, name) != 0) perror("swap_after_stat");
  }
  return result;
}
