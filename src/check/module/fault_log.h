// The log of `weft run --faults FILE --record LOG`: each effect that a rule had, as a rule that has
// this effect alone. So `--replay LOG` needs nothing that --faults does not.
#pragma once

#include <string>
#include <string_view>

#include "faults/fault_rule.h"

namespace weft::check {

// One thread at a time. Several processes write to one file.
class FaultLog {
 public:
  // `path`: empty: there is none. `command`: the words of the command line, with blanks.
  FaultLog(std::string path, std::string_view rank, std::string_view command);

  // The rule for this process. A log that cannot be written is said once.
  void write(faults::FaultRule rule);

 private:
  const std::string path_;
  std::string rank_;
  std::string program_;  // a pattern
  std::string suffix_;   // of names: others of this log have the same, perhaps
  bool failed_ = false;
};

}  // namespace weft::check
