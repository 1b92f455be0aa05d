// Which names of a tree a copy leaves alone, at its source and at its destination (--exclude).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft::files {

// As rsync has it: a pattern of the shell is for names anywhere; with a slash within, for the last
// components of a path; with a slash at its beginning, for paths from the top of the tree; with a
// slash at its end, for folders only. `*` and `?` match no slash. `below`: the folder of `name`
// below the top, "" for the top itself.
[[nodiscard]] bool is_excluded(const std::vector<std::string>& patterns, std::string_view below,
                               std::string_view name, bool is_folder);

}  // namespace weft::files
