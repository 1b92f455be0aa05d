// Which rings of shared memory this process has mapped.
#pragma once

#include <cstddef>
#include <fstream>
#include <set>
#include <sstream>
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

// The rings that are mapped, by their number as files.
inline std::set<std::string> mapped_rings() {
  std::ifstream maps("/proc/self/maps");
  std::set<std::string> out;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("weft-ring") == std::string::npos) continue;
    std::istringstream in(line);
    std::string range, rights, offset, device, inode;
    in >> range >> rights >> offset >> device >> inode;
    out.insert(inode);
  }
  return out;
}

}  // namespace weft::test
