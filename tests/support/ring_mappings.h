// Which rings of shared memory this process has mapped.
#pragma once

#include <cstddef>
#include <fstream>
#include <string>

namespace weft::test {

inline std::size_t ring_mappings() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    count += line.find("weft-ring") != std::string::npos ? 1 : 0;
  }
  return count;
}

}  // namespace weft::test
