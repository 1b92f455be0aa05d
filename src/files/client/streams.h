// Several connections that share the files of a copy (-j): each has a thread and a copy of its own,
// and what they report is put together. The tree is walked meanwhile.
//
// The caller's thread makes and ends it, and begins all work. Reports come from all threads, one at
// a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "files/client/copy_options.h"
#include "os/lock.h"

namespace weft::files {

class Streams {
 public:
  using Work = std::function<Outcome<void>()>;

  // `out` gets the reports, in progress also what the caller has copied itself.
  explicit Streams(CopyWatcher out) : out_(std::move(out)) {}
  ~Streams() { static_cast<void>(finish()); }
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  [[nodiscard]] const CopyWatcher& out() const { return out_; }
  // For the caller's own reports (kCaller), and for each copy. It refers to this object.
  static constexpr std::size_t kCaller = 0;
  [[nodiscard]] CopyWatcher watcher(std::size_t part);

  // One of the first `count` streams that has nothing to do; `count` if none has.
  [[nodiscard]] std::size_t idle(std::size_t count);
  // As idle(), and waits for one. The failure of a stream ends that.
  [[nodiscard]] Outcome<std::size_t> wait_idle(std::size_t count);
  // No stream has failed.
  [[nodiscard]] bool good();
  // REQUIRES: that stream has nothing to do.
  void begin(std::size_t stream, Work work);
  // Returns when all have nothing to do: the first failure.
  [[nodiscard]] Outcome<void> finish();

  // Does all of them at the same time, and returns when the last one is done: the first failure.
  [[nodiscard]] static Outcome<void> run(const std::vector<Work>& all);

  // How many streams, at most `most`, are worth their connections for files of such weights.
  [[nodiscard]] static std::size_t useful(const std::vector<std::uint64_t>& weights,
                                          std::size_t most);
  // Where each of `count` shares of about the same weight begins, and behind them the end.
  [[nodiscard]] static std::vector<std::size_t> share(const std::vector<std::uint64_t>& weights,
                                                      std::size_t count);

 private:
  struct Stream {
    std::thread thread;
    bool busy = false;
    Outcome<void> result;
  };
  void work(Stream& stream, const Work& work);
  [[nodiscard]] std::size_t find_idle(std::size_t count) WEFT_REQUIRES(mutex_);

  const CopyWatcher out_;
  os::Mutex mutex_;
  os::Condition done_;
  std::vector<CopyTotals> parts_ WEFT_GUARDED_BY(mutex_);  // each copy's, so far
  std::vector<std::unique_ptr<Stream>> streams_ WEFT_GUARDED_BY(mutex_);
};

// `count` copies with connections of their own, made at the same time: `make` gives one, or nothing
// where the server takes no more. Some may be there already.
template <class Copy, class Make>
void open_streams(std::vector<std::unique_ptr<Copy>>& streams, std::size_t count,
                  const Make& make) {
  if (streams.size() >= count) return;
  std::vector<std::unique_ptr<Copy>> more(count - streams.size());
  std::vector<Streams::Work> all;
  for (auto& one : more) {
    all.emplace_back([&one, &make] {
      one = make();
      return Outcome<void>();
    });
  }
  static_cast<void>(Streams::run(all));
  for (auto& one : more) {
    if (one != nullptr) streams.push_back(std::move(one));
  }
}

}  // namespace weft::files
