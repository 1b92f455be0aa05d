// File names from the configuration.
#pragma once

#include <string>

namespace weft::os {

// Each "%p" becomes the process id.
[[nodiscard]] std::string with_pid(std::string path);

}  // namespace weft::os
