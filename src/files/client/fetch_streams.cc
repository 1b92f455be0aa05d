// A fetch over several connections, which copy while the tree is walked.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

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
  if (!helpers_.work() && useful <= 1) return get_here();
  return Helpers<Fetch>::share(files_, weights, useful,
                               [this](std::size_t count) { return hand_over(count); });
}

// Gives files_ to one of up to `count` other connections. Where the server takes no more of them,
// or they are lost and this one is not, they are copied here.
Outcome<void> Fetch::hand_over(std::size_t count) {
  helpers_.start(watcher_);
  if (watcher_.progress) watcher_.progress(totals_);
  const auto helper = helpers_.wait_for_one(count, [this] {
    CopyOptions options = options_;
    options.streams = 1;
    auto one = std::make_unique<Fetch>(server_, std::move(options), CopyWatcher());
    one->pace_ = pace_;
    return one->connect() ? std::move(one) : nullptr;
  });
  if (!helper) {
    static_cast<void>(stat(std::string()));
    return client_->alive() ? get_here() : tl::unexpected(helper.error());
  }
  if (*helper == nullptr) return get_here();
  auto destination = destination_->another();
  if (!destination) return tl::unexpected(destination.error());
  Fetch& one = **helper;
  one.destination_ = std::move(*destination);
  one.links_ = links_;
  one.files_ = std::exchange(files_, {});
  helpers_.begin(one, one.watcher_, [&one] { return one.get_here(); });
  return {};
}

Outcome<void> Fetch::hand_over_some() {
  if (options_.dry_run) return would_get_queued();
  if (files_.size() < options_.queued_files / (options_.streams + 1)) return {};
  return hand_over(helpers_.one_more(options_.streams));
}

Outcome<void> Fetch::finish_streams() {
  if (!helpers_.work()) return {};
  auto ok = helpers_.finish(
      [this](Fetch& one) {
        std::ranges::move(one.files_, std::back_inserter(files_));
        return !std::exchange(one.files_, {}).empty();
      },
      [this](std::size_t count) { return hand_over(count); });
  helpers_.for_each([this](Fetch& one) {
    totals_ += std::exchange(one.totals_, {});
    one.watcher_ = {};
  });
  helpers_.stop(watcher_);
  return ok;
}

}  // namespace weft::files
