// Several connections that share the files of a copy (-j): each has a thread and a copy of its own,
// and what they report is put together.
//
// The caller's thread makes and ends it. Reports come from all threads, one at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "files/client/copy_options.h"
#include "os/lock.h"

namespace weft::files {

class Streams {
 public:
  using Work = std::function<Outcome<void>()>;

  // `out` gets the reports. Progress is told with `before`, what was copied earlier, in it.
  Streams(const CopyWatcher& out, const CopyTotals& before) : out_(out), before_(before) {}
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  // For one more copy. It refers to this object.
  [[nodiscard]] CopyWatcher watcher();
  // Does all of them at the same time, and returns when the last one is done: the first failure.
  [[nodiscard]] static Outcome<void> run(const std::vector<Work>& all);

  // Where each of `count` shares of about the same weight begins, and behind them the end.
  [[nodiscard]] static std::vector<std::size_t> share(const std::vector<std::uint64_t>& weights,
                                                      std::size_t count);

 private:
  const CopyWatcher& out_;
  const CopyTotals before_;
  os::Mutex mutex_;
  std::vector<CopyTotals> parts_ WEFT_GUARDED_BY(mutex_);  // each copy's, so far
};

}  // namespace weft::files
