// Sanitizers want to be the first of all libraries that are preloaded: AddressSanitizer ends the
// program where it is not.
#pragma once

#include <string>
#include <string_view>

namespace weft::cli {

// Whether a file is the library of a sanitizer of gcc or clang.
[[nodiscard]] bool is_sanitizer(std::string_view library);
// The one that this program is linked with. Empty: none, or it is a part of the program.
[[nodiscard]] std::string sanitizer_of(const std::string& program);

// Puts an entry in front of those of LD_PRELOAD, but behind sanitizers.
[[nodiscard]] std::string preloaded_before(const std::string& entry, std::string_view before);

}  // namespace weft::cli
