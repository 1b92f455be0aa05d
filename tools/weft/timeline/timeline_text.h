// The words of `weft timeline report`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "timeline/clocks.h"
#include "timeline/story.h"

namespace weft::cli {

[[nodiscard]] std::string timeline_text(const timeline::Story& story,
                                        const timeline::Clocks& clocks);
[[nodiscard]] nlohmann::json timeline_json(const timeline::Story& story,
                                           const timeline::Clocks& clocks);

}  // namespace weft::cli
