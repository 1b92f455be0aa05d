// How long the parts of requests and messages took.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "timeline/clocks.h"
#include "timeline/story.h"

namespace weft::timeline {

// A part of all requests, or messages, of a kind. Nanoseconds.
struct Phase {
  std::string_view name;
  std::size_t count = 0;
  std::uint64_t median = 0, p99 = 0, most = 0;
};

struct Phases {
  std::size_t process = 0;
  bool requests = false;  // else messages of the peer
  Op op{};
  std::size_t count = 0;
  std::vector<Phase> phases;  // those that are known
};
[[nodiscard]] std::vector<Phases> phases_of(const Story& story, const Clocks& clocks);

}  // namespace weft::timeline
