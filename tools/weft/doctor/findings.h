// What `weft doctor` says of a machine: pure functions over the facts.
#pragma once

#include <string>
#include <vector>

#include "weft/doctor/machine.h"

namespace weft::cli {

struct Finding {
  enum class Level {
    kOk,       // nothing to do
    kAdvice,   // works; a change would gain something
    kProblem,  // something that Weft offers does not work
  };
  Level level{};
  std::string topic;   // "open files"
  std::string found;   // what there is
  std::string change;  // what to do; empty with kOk
  std::string gain;    // what that gains; empty with kOk
};
[[nodiscard]] std::vector<Finding> judge(const Machine& machine);

}  // namespace weft::cli
