// The hosts that rules of `weft run --faults` name, as in `on qp h1:0`, and their addresses.
//
//   WEFT_LAB_LOOPBACK  the names h1, h2, ... mean 127.0.0.1, 127.0.0.2, ...: `weft lab run
//                      --loopback` has no hosts that have these names
#pragma once

#include <map>
#include <string>
#include <vector>

namespace weft::check {

// Values: any thread.
class PeerNames {
 public:
  // `wanted`: with the line of a rule. Looks for their addresses, and says which has none.
  explicit PeerNames(const std::map<std::string, int>& wanted);

  // The names that a host (os::host_text()) has among them.
  [[nodiscard]] std::vector<std::string> of(const std::string& host) const;

 private:
  std::multimap<std::string, std::string> names_;  // by address
};

}  // namespace weft::check
