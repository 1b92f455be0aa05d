// A file that is there as a whole, or as it was.
#pragma once

#include <string>
#include <string_view>

namespace weft::cli {

// `path` becomes a file with this text once all of it is written. Where one is there already, that
// one is replaced; a link to it stays, and so do its permissions. Devices and pipes take the text
// as it comes. False, with errno: a file that was there is as it was.
[[nodiscard]] bool replace_file(const std::string& path, std::string_view text);

}  // namespace weft::cli
