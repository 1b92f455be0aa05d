// The output of several programs, line by line, each line with the name of its host before it.
#pragma once

#include <poll.h>

#include <memory>
#include <string>
#include <vector>

#include "weft/command.h"
#include "weft/common/net.h"

namespace weft::cli {

class LineOutput {
 public:
  // The end that a program writes to; its lines go to `stream`, one of ours.
  [[nodiscard]] Outcome<UniqueFd> add(int stream, std::string before);
  // For poll(), and what to do behind it. `polled` may have others too.
  void add_to(std::vector<pollfd>& polled) const;
  void read_from(const std::vector<pollfd>& polled);
  // All that is there already; the writers have gone.
  void drain();

 private:
  struct Source {
    UniqueFd fd;
    int stream;
    std::string before;
    std::string line;  // that has not ended yet
  };
  static void read_some(Source& source);
  static void print(Source& source, bool all);

  std::vector<Source> sources_;
};

}  // namespace weft::cli
