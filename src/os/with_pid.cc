#include "os/with_pid.h"

#include <unistd.h>

namespace weft::os {

std::string with_pid(std::string path) {
  const std::string pid = std::to_string(getpid());
  for (std::size_t at = path.find("%p"); at != std::string::npos;
       at = path.find("%p", at + pid.size())) {
    path.replace(at, 2, pid);
  }
  return path;
}

}  // namespace weft::os
