// A finding of `weft run --check`, as the rules hand it over.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft::check {

// Names a place in the program for whoever feeds the rules; 0: unknown.
using Origin = std::uint32_t;

// Where something happened.
struct Here {
  std::string_view call;  // the function of verbs or rdma_cm
  Origin at = 0;
};

struct Note {
  std::string text;
  Origin at = 0;
};

struct Finding {
  std::string_view rule;  // as in the catalog
  std::string call;
  std::string text;
  Origin at = 0;
  std::vector<Note> notes;  // the objects, with where they were made
};

}  // namespace weft::check
