#include "files/client/extras.h"

#include <algorithm>
#include <utility>

namespace weft::files {

void Extras::clear() {
  all_.clear();
  bytes_ = 0;
  source_is_empty_ = false;
}

void Extras::note(Extra extra) {
  bytes_ += sizeof extra + extra.below.size() + extra.name.size();
  all_.push_back(std::move(extra));
}

Outcome<void> Extras::may_go(const CopyOptions& options, const CopyTotals& totals) const {
  if (all_.empty()) return {};
  const std::string count = std::to_string(all_.size());
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
  if (all_.size() > options.max_delete) {
    return failed(ECANCELED, "--delete",
                  "nothing was removed: that would be " + count + " names, and --max-delete is " +
                      std::to_string(options.max_delete));
  }
  return {};
}

std::vector<Extra> Extras::in_order() && {
  const auto depth = [](const Extra& e) {
    return e.below.empty() ? 0 : 1 + std::count(e.below.begin(), e.below.end(), '/');
  };
  std::stable_sort(all_.begin(), all_.end(), [&](const Extra& a, const Extra& b) {
    if (a.is_folder != b.is_folder) return b.is_folder;
    return depth(a) > depth(b);
  });
  return std::move(all_);
}

}  // namespace weft::files
