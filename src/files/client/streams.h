// Several connections that share the files of a copy (-j): each has a thread and a copy of its own,
// and what they report is put together. The tree is walked meanwhile.
//
// The caller's thread makes and ends it, and begins all work. Reports come from all threads, one at
// a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
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

  // One of the first `count` streams that has nothing to do; `count` if none has. One whose work
  // has failed is lost, and gets no more.
  [[nodiscard]] std::size_t idle(std::size_t count);
  // As idle(), and waits for one. Where all of them are lost: the failure of the first.
  [[nodiscard]] Outcome<std::size_t> wait_idle(std::size_t count);
  // Returns when all have nothing to do.
  void wait_all();
  // REQUIRES: that stream has nothing to do, and is not lost.
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

// The copies that help with the files of one copy. They stay when their work is done, for the next
// tree.
template <class Copy>
class Helpers {
 public:
  // Some have got work, and nobody has said stop() since.
  [[nodiscard]] bool work() const { return streams_ != nullptr; }
  // From now on all report to `watcher`, which is the caller's own.
  void start(CopyWatcher& watcher) {
    if (streams_ != nullptr) return;
    streams_ = std::make_unique<Streams>(std::exchange(watcher, {}));
    watcher = streams_->watcher(Streams::kCaller);
  }

  // As many as are busy, and one more.
  [[nodiscard]] std::size_t one_more(std::size_t most) {
    const std::size_t idle = streams_ == nullptr ? 0 : streams_->idle(copies_.size());
    return std::min(most, idle + 1);
  }
  // One that has nothing to do, of up to `count`, or of those that are there; `make` as
  // open_streams() has it. Null: the server takes none. A failure: all are lost.
  // REQUIRES: work()
  template <class Make>
  [[nodiscard]] Outcome<Copy*> wait_for_one(std::size_t count, const Make& make) {
    if (copies_.size() < count && waits_ == 0) {
      open_streams(copies_, count, make);
      if (copies_.size() < count) waits_ = kSharesBetween;
    } else if (waits_ != 0) {
      --waits_;
    }
    if (copies_.empty()) return nullptr;
    const auto free = streams_->wait_idle(copies_.size());
    if (!free) return tl::unexpected(free.error());
    return copies_[*free].get();
  }
  // Lets the one that wait_for_one() gave do `work`, and report to `watcher`, which is its own.
  void begin(Copy& one, CopyWatcher& watcher, Streams::Work work) {
    const auto at =
        std::ranges::find_if(copies_, [&one](const auto& copy) { return copy.get() == &one; });
    const auto number = static_cast<std::size_t>(at - copies_.begin());
    watcher = streams_->watcher(1 + number);
    streams_->begin(number, std::move(work));
  }

  // Gives all of `files` away, in shares of about the same weight: each is put into `files`, and
  // then `hand_over` gets the number of helpers that they are worth.
  template <class File, class HandOver>
  [[nodiscard]] static Outcome<void> share(std::vector<File>& files,
                                           const std::vector<std::uint64_t>& weights,
                                           std::size_t count, const HandOver& hand_over) {
    std::vector<File> all = std::exchange(files, {});
    const std::vector<std::size_t> shares = Streams::share(weights, count);
    Outcome<void> ok;
    for (std::size_t i = 0; ok && i < count; ++i) {
      const auto from = std::make_move_iterator(all.begin());
      files.assign(from + static_cast<std::ptrdiff_t>(shares[i]),
                   from + static_cast<std::ptrdiff_t>(shares[i + 1]));
      if (!files.empty()) ok = hand_over(count);
    }
    return ok;
  }
  // Waits for all. `left` takes from each copy the files that it has left, as it was lost, and says
  // whether there were any; then `hand_over` gives them to another one.
  template <class Left, class HandOver>
  [[nodiscard]] Outcome<void> finish(const Left& left, const HandOver& hand_over) {
    for (;;) {
      streams_->wait_all();
      bool more = false;
      for (const auto& one : copies_) more = left(*one) || more;
      if (!more) return {};
      if (auto ok = hand_over(copies_.size()); !ok) return ok;
    }
  }
  // Back to the state before start().
  // REQUIRES: work(), and finish() has returned
  void stop(CopyWatcher& watcher) {
    static_cast<void>(streams_->finish());
    watcher = streams_->out();
    streams_.reset();
    waits_ = 0;
  }
  template <class Visit>
  void for_each(const Visit& visit) const {
    for (const auto& one : copies_) visit(*one);
  }

 private:
  // A server that had no room for more connections is asked again behind so many shares.
  static constexpr unsigned kSharesBetween = 16;

  std::vector<std::unique_ptr<Copy>> copies_;
  std::unique_ptr<Streams> streams_;  // goes first: its threads use them
  unsigned waits_ = 0;                // shares until more connections are asked for
};

}  // namespace weft::files
