// Which lines of the program a backtrace goes through, by its debug information.
#pragma once

#include <string>
#include <vector>

namespace weft::check {

// The call of Weft's that this thread is in.
struct Caller {
  std::vector<void*> trace;  // return addresses of the program, the innermost first
  std::string call;          // the function of Weft's that was called; empty: no symbol names it
};
[[nodiscard]] Caller look_back();

struct Frame {
  std::string function;  // empty: unknown
  std::string file;      // its last part, or the object file where there is no debug information
  int line = 0;          // 0: unknown
};

// The frames at these addresses of the program; those of rdma-core's headers are left out. The
// innermost first, and functions that were inlined are frames too. At most `most`. One thread at a
// time.
[[nodiscard]] std::vector<Frame> program_frames(const std::vector<void*>& trace, std::size_t most);

}  // namespace weft::check
