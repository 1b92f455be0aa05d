// The output of several programs, line by line, each line with the name of its host before it.
#pragma once

#include <poll.h>

#include <map>
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
  // Waits for no reader: what a stream does not take is kept, and no more is read for it.
  void serve(const std::vector<pollfd>& polled);
  // Takes what is there already, and nothing after that.
  void take_rest();
  // A stream has not taken all that was printed.
  [[nodiscard]] bool waits() const { return !waiting_.empty(); }

 private:
  struct Source {
    UniqueFd fd;
    int stream;
    std::string before;
    std::string line;  // that has not ended yet
  };
  int read_some(Source& source);
  void print(Source& source, bool all);
  void write_some(int stream);
  void lose(int stream);

  std::vector<Source> sources_;
  std::map<int, std::string> waiting_;  // by stream: what it has not taken yet
};

}  // namespace weft::cli
