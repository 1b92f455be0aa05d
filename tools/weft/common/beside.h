// Programs of Weft that other programs of Weft start.
#pragma once

#include <string>

#include "weft/command.h"

namespace weft::cli {

// The file of a program that is in the folder of this one, or in libexec/weft beside it. `needs`
// says what it is built with, for the message.
[[nodiscard]] Outcome<std::string> find_beside(const std::string& program,
                                               const std::string& needs);

}  // namespace weft::cli
