// The decisions of `weft run --shake` in the log of `--record`, as comments: for a reader. What
// repeats them is the line with the seed, which `weft run` writes.
//
//   WEFT_SHAKE_RECORD   the log
//
// Any thread.
#pragma once

namespace weft::ibverbs {

// There is a log. Set when the library is loaded.
extern constinit bool logs_shaking;
void start_shake_log();
// A line: object, and what happens to which of its requests. Leaves errno alone. REQUIRES:
// logs_shaking.
[[gnu::format(printf, 1, 2)]] void shake_log(const char* format, ...) noexcept;

}  // namespace weft::ibverbs
