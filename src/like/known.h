// The devices whose profiles are built in: what `weft probe` printed on them ("measured"), or what
// others showed of theirs ("reported").
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

#include "like/device_profile.h"

namespace weft::like {

struct Known {
  std::string_view name;
  std::string_view what;  // for a list
  std::string_view text;  // of the profile
};
[[nodiscard]] std::span<const Known> known_devices();

// The contents of a file, or why they cannot be had.
using ReadFile = std::function<tl::expected<std::string, std::string>(const std::string& path)>;

// A wish of a user: the name of a device that is known, or a file; then, or instead of it,
// settings that change it: "siw,max_qp=4", "my-adapter.profile", "max_qp=4,qp.max_inline=0".
// The error names the word that is wrong and says what is legal.
[[nodiscard]] tl::expected<Profile, std::string> profile_of(std::string_view wish,
                                                            const ReadFile& read);

}  // namespace weft::like
