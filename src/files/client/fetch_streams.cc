// A fetch over several connections.
#include <iterator>

#include "files/client/fetch.h"
#include "files/client/streams.h"

namespace weft::files {
namespace {

constexpr std::uint64_t kFileWeight = 64U << 10U;  // of its name, in octets

}  // namespace

// Files in their order, so that those of a folder stay together. Where the server takes no more
// connections there are fewer.
Outcome<void> Fetch::get_by_streams() {
  Streams streams(watcher_, totals_);
  CopyOptions options = options_;
  options.streams = 1;
  options.bytes_per_second = options_.bytes_per_second / options_.streams;
  while (streams_.size() < options_.streams) {
    auto one = std::make_unique<Fetch>(server_, options, CopyWatcher());
    if (!one->connect()) break;
    streams_.push_back(std::move(one));
  }
  if (streams_.empty()) return get_here();
  std::vector<std::uint64_t> weights;
  weights.reserve(files_.size());
  for (const File& file : files_) weights.push_back(kFileWeight + file.attributes.size);
  const std::vector<std::size_t> shares = Streams::share(weights, streams_.size());
  std::vector<Streams::Work> all;
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    Fetch& one = *streams_[i];
    auto destination = destination_->another();
    if (!destination) return tl::unexpected(destination.error());
    one.destination_ = std::move(*destination);
    one.watcher_ = streams.watcher();
    one.links_ = links_;
    one.totals_ = {};
    const auto from = std::make_move_iterator(files_.begin());
    one.files_.assign(from + static_cast<std::ptrdiff_t>(shares[i]),
                      from + static_cast<std::ptrdiff_t>(shares[i + 1]));
    all.emplace_back([&one] { return one.get_here(); });
  }
  auto ok = Streams::run(all);
  for (const auto& one : streams_) {
    totals_ += one->totals_;
    one->watcher_ = {};
  }
  files_.clear();
  return ok;
}

}  // namespace weft::files
