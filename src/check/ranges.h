// Ranges of memory that don't overlap, each with where it was named.
//
// One thread at a time.
#pragma once

#include <cstdint>
#include <map>

#include "check/finding.h"
#include "check/observer.h"

namespace weft::check {

class Ranges {
 public:
  // Replaces what was there.
  void add(const Octets& octets, Origin at);
  void remove(const Octets& octets);
  // Where the first of those was named that overlap. Null: there is none.
  [[nodiscard]] const Origin* find(const Octets& octets) const;
  [[nodiscard]] bool is_empty() const { return ranges_.empty(); }

 private:
  struct Range {
    std::uint64_t end;
    Origin at;
  };
  std::map<std::uint64_t, Range> ranges_;
};

}  // namespace weft::check
