// Which lines of the program a backtrace goes through, by its debug information.
#pragma once

#include <string>
#include <vector>

namespace weft::check {

// The return addresses of the caller, the innermost first.
[[nodiscard]] std::vector<void*> take_backtrace();

struct Frame {
  std::string function;  // empty: unknown
  std::string file;      // its last part, or the object file where there is no debug information
  int line = 0;          // 0: unknown
};

// The frames of the program itself: those of Weft's libraries and of rdma-core's headers are left
// out. The innermost first, and functions that were inlined are frames too. At most `most`.
[[nodiscard]] std::vector<Frame> program_frames(const std::vector<void*>& trace, std::size_t most);

// Where the program called Weft: the first address that is not Weft's. Null: there is none.
[[nodiscard]] const void* calling_address(const std::vector<void*>& trace);

// The outermost function of Weft's libraries: what the program called. Empty: no symbol names it.
[[nodiscard]] std::string called_function(const std::vector<void*>& trace);

}  // namespace weft::check
