// Functions that `weft run` and the library of IWARP mode look for in this library.
#include "sockets/granted/granted.h"
#include "sockets/granted/number_states.h"
#include "sockets/socket_rules.h"

using namespace weft::sockets;
using namespace weft::sockets::granted;

// For `weft run --rules`: 0, or what is wrong with the file in `why`.
WEFT_SEEN int weft_sockets_check_rules(const char* path, char* why, size_t size) {
  static Rules rules;
  return rules.load(path, why, size) ? 0 : -1;
}

// The socket `fd` is an rsocket from now on.
WEFT_SEEN void weft_sockets_by_rdma(int fd) {
  // Told here, since it may be the kernel's alone by now, for its options.
  if (Number* number = numbers::find(fd)) states::tell(fd, *number, Why::kRdma);
  leave_to_kernel(fd, Why::kRdma);
}
