// A file that is there as a whole, or as it was.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace weft::cli {

// `path` becomes a file with this text once all of it is written. Where one is there already, that
// one is replaced; a link to it stays, and so do its permissions. What name_to_replace() leaves out
// takes the text as it comes, and so does a file in a folder that takes no new one. False, with
// errno: what could be replaced is as it was.
[[nodiscard]] bool replace_file(const std::string& path, std::string_view text);

// The name behind `path` that another file may get: a free one, or that of an own file. None: a
// file of another user, one with several names or that may not be written, a device, a pipe, a name
// of /proc or /dev. Those are opened and written as they are.
[[nodiscard]] std::optional<std::string> name_to_replace(const std::string& path);

}  // namespace weft::cli
