// A fetch over several connections, which copy while the tree is walked.
#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "files/client/fetch.h"

namespace weft::files {
namespace {

constexpr std::uint64_t kFileWeight = 64U << 10U;  // of its name, in octets

}  // namespace

// Everything in files_; the tree has been walked. Files that one connection copies as fast as
// several are copied by this one.
Outcome<void> Fetch::get_queued() {
  if (options_.dry_run) return would_get_queued();
  std::vector<std::uint64_t> weights;
  weights.reserve(files_.size());
  for (const File& file : files_) weights.push_back(kFileWeight + file.attributes.size);
  const std::size_t useful = Streams::useful(weights, options_.streams);
  if (working_ == nullptr && useful <= 1) return get_here();
  std::vector<File> all = std::exchange(files_, {});
  const std::vector<std::size_t> shares = Streams::share(weights, useful);
  Outcome<void> ok;
  for (std::size_t i = 0; ok && i < useful; ++i) {
    const auto from = std::make_move_iterator(all.begin());
    files_.assign(from + static_cast<std::ptrdiff_t>(shares[i]),
                  from + static_cast<std::ptrdiff_t>(shares[i + 1]));
    if (!files_.empty()) ok = hand_over(useful);
  }
  return ok;
}

// Gives files_ to one of up to `count` other connections. Where the server takes no more of them,
// they are copied here.
Outcome<void> Fetch::hand_over(std::size_t count) {
  if (working_ == nullptr) {
    working_ = std::make_unique<Streams>(std::exchange(watcher_, {}));
    watcher_ = working_->watcher(Streams::kCaller);
  }
  if (watcher_.progress) watcher_.progress(totals_);
  open_streams(streams_, count, [this] {
    CopyOptions options = options_;
    options.streams = 1;
    auto one = std::make_unique<Fetch>(server_, std::move(options), CopyWatcher());
    one->pace_ = pace_;
    return one->connect() ? std::move(one) : nullptr;
  });
  if (streams_.size() < count) {
    options_.streams = std::max(1U, static_cast<unsigned>(streams_.size()));
  }
  if (streams_.empty()) return get_here();
  const auto free = working_->wait_idle(streams_.size());
  if (!free) return tl::unexpected(free.error());
  auto destination = destination_->another();
  if (!destination) return tl::unexpected(destination.error());
  Fetch& one = *streams_[*free];
  one.destination_ = std::move(*destination);
  one.watcher_ = working_->watcher(1 + *free);
  one.links_ = links_;
  one.files_ = std::exchange(files_, {});
  working_->begin(*free, [&one] { return one.get_here(); });
  return {};
}

// As many as are busy, and one more.
Outcome<void> Fetch::hand_over_some() {
  if (options_.dry_run) return would_get_queued();
  if (files_.size() < options_.queued_files / (options_.streams + 1)) return {};
  const std::size_t idle = working_ == nullptr ? 0 : working_->idle(streams_.size());
  return hand_over(std::min<std::size_t>(options_.streams, idle + 1));
}

Outcome<void> Fetch::finish_streams() {
  if (working_ == nullptr) return {};
  auto ok = working_->finish();
  for (const auto& one : streams_) {
    totals_ += std::exchange(one->totals_, {});
    one->watcher_ = {};
  }
  watcher_ = working_->out();
  working_.reset();
  return ok;
}

}  // namespace weft::files
