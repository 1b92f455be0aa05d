// How this process is told from others of the same run.
#pragma once

#include <string>

namespace weft::check {

// As a launcher numbers it; empty: none did.
[[nodiscard]] std::string rank_of_process();
// Its arguments, ended with a null each.
[[nodiscard]] std::string command_line();

}  // namespace weft::check
