#include "files/client/extras.h"

#include <algorithm>
#include <utility>

namespace weft::files {

void Extras::clear(const CopyOptions& options) {
  *this = Extras();
  most_bytes_ = options.names_bytes;
}

void Extras::enter(const std::string& below, bool is_hidden) {
  counts_ = bytes_ >= most_bytes_;
  if (counts_) folders_.push_back({below, is_hidden});
}

void Extras::note(Extra extra) {
  if (counts_) {
    ++counted_;
    return;
  }
  bytes_ += sizeof extra + extra.below.size() + extra.name.size();
  all_.push_back(std::move(extra));
}

Outcome<void> Extras::may_go(const CopyOptions& options, const CopyTotals& totals) const {
  const std::uint64_t names = all_.size() + counted_;
  if (names == 0) return {};
  const std::string count = std::to_string(names);
  if (totals.failures != 0) {
    return failed(ECANCELED, "--delete",
                  "nothing was removed, because something failed before; " + count +
                      " names are only at the destination");
  }
  if (source_is_empty_ && !options.force_delete) {
    return failed(ECANCELED, "--delete",
                  "nothing was removed: the source is empty, as a file system is that was not "
                  "mounted; --force-delete removes all the same");
  }
  if (source_is_other_ && !options.force_delete) {
    return failed(
        ECANCELED, "--delete",
        "nothing was removed: the source is on another file system than the last time, as "
        "it is where one was not mounted; --force-delete removes all the same");
  }
  if (names > options.max_delete) {
    return failed(ECANCELED, "--delete",
                  "nothing was removed: that would be " + count + " names, and --max-delete is " +
                      std::to_string(options.max_delete));
  }
  return {};
}

std::vector<ExtraFolder> Extras::take_folders() {
  most_bytes_ = ~std::uint64_t{0};
  std::vector<ExtraFolder> out = std::exchange(folders_, {});
  std::ranges::reverse(out);
  return out;
}

std::vector<Extra> Extras::take_in_order() {
  const auto depth = [](const Extra& e) {
    return e.below.empty() ? 0 : 1 + std::count(e.below.begin(), e.below.end(), '/');
  };
  std::stable_sort(all_.begin(), all_.end(), [&](const Extra& a, const Extra& b) {
    if (a.is_folder != b.is_folder) return b.is_folder;
    return depth(a) > depth(b);
  });
  return std::exchange(all_, {});
}

}  // namespace weft::files
