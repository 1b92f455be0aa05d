// Under which conditions a run was made: what the report's header says.
#pragma once

#include "weft/perf/perf_client.h"

namespace weft::cli {

// What a server tells of its own side in its welcome.
[[nodiscard]] Json describe_server(const std::string& pin);

[[nodiscard]] RunConditions make_conditions(const ClientSetup& setup, const Config& config,
                                            const Json& welcome);

}  // namespace weft::cli
