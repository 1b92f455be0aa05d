/* Preloaded into a client: somebody else is faster. mkdirat() makes the folder and says that it was
 * there; so does symlinkat(), whose link then leads to $WEFT_TEST_LEADS_TO if that is set. Into a
 * server with $WEFT_TEST_DIES: the folder is made, and nobody is told.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((visibility("default"))) int mkdirat(int folder, const char* name, mode_t mode) {
  if (syscall(SYS_mkdirat, folder, name, mode) != 0) return -1;
  if (getenv("WEFT_TEST_DIES") != NULL) kill(getpid(), SIGKILL);
  errno = EEXIST;
  return -1;
}

__attribute__((visibility("default"))) int symlinkat(const char* target, int folder,
                                                     const char* name) {
  const char* other = getenv("WEFT_TEST_LEADS_TO");
  if (strncmp(name, ".weft-part-", 11) == 0)
    return (int)syscall(SYS_symlinkat, target, folder, name);
  if (syscall(SYS_symlinkat, other == NULL ? target : other, folder, name) == 0) errno = EEXIST;
  return -1;
}
