#include "check/module/suppressions.h"

#include <fnmatch.h>

#include <fstream>
#include <sstream>
#include <utility>

namespace weft::check {

std::vector<Suppression> read_suppressions(const std::string& file) {
  std::vector<Suppression> out;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    Suppression one;
    std::istringstream words(line.substr(0, line.find('#')));
    if (!(words >> one.rule)) continue;
    if (!(words >> one.function)) one.function = "*";
    out.push_back(std::move(one));
  }
  return out;
}

bool is_suppressed(const std::vector<Suppression>& suppressions, const Placed& placed) {
  for (const Suppression& one : suppressions) {
    if (fnmatch(one.rule.c_str(), std::string(placed.finding.rule).c_str(), 0) != 0) continue;
    if (one.function == "*") return true;
    for (const Frame& frame : placed.frames) {
      if (fnmatch(one.function.c_str(), frame.function.c_str(), 0) == 0) return true;
    }
  }
  return false;
}

}  // namespace weft::check
