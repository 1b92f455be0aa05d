// Where findings go: a file of the report folder, or stderr.
#pragma once

#include <string>

#include "check/check_rules.h"
#include "check/module/frames.h"
#include "os/fd.h"

namespace weft::check {

struct PlacedNote {
  std::string text;
  std::vector<Frame> frames;
};

// A finding with its places.
struct Placed {
  Finding finding;
  std::vector<Frame> frames;
  std::vector<PlacedNote> notes;
};

class Output {
 public:
  // `folder`: of the report; empty: stderr.
  explicit Output(const std::string& folder);

  // Each finding leaves with one system call: a process that is killed has reported what it found.
  void write(const Placed& placed);

 private:
  std::string folder_;
  os::Fd file_;  // opened with the first finding
};

// As lines for a reader.
[[nodiscard]] std::string as_text(const Placed& placed);
// As one line of JSON.
[[nodiscard]] std::string as_json(const Placed& placed);

}  // namespace weft::check
