// Files that `sync --delete` may remove at the destination, and when it may remove them.
//
// A list proves nothing by absence: a name that is not in it may be hidden by a folder that could
// not be searched, a disk that fails, or a file system that was not mounted. So the names are
// noted while a tree is walked, and nothing is removed before everything has been copied without a
// failure. Then each name is asked for once more, and goes only if the answer is ENOENT.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "files/client/copy_options.h"
#include "files/protocol/outcome.h"

namespace weft::files {

// One name that the destination has and the source does not list.
struct Extra {
  std::string below;  // the folder, below the root of the copy
  std::string name;
  bool is_folder = false;
  bool is_hidden = false;  // the source has it, or may have it: Filter::hides()
};

class Extras {
 public:
  // Another copy begins.
  void clear();
  void note(Extra extra);
  // They take more memory than a server may make a client take.
  [[nodiscard]] bool is_full() const { return bytes_ > kBytesMax; }
  // The source's root has no entry at all.
  void note_empty_source() { source_is_empty_ = true; }

  // Whether they may be removed: nothing has failed so far, the source is not empty
  // (CopyOptions::force_delete), and they are no more than CopyOptions::max_delete.
  //   ECANCELED   with the reason, and what to do
  [[nodiscard]] Outcome<void> may_go(const CopyOptions& options, const CopyTotals& totals) const;
  // In the order in which they go: folders last, the deepest first.
  [[nodiscard]] std::vector<Extra> in_order() &&;

 private:
  static constexpr std::size_t kBytesMax = std::size_t{1} << 30U;
  std::vector<Extra> all_;
  std::size_t bytes_ = 0;
  bool source_is_empty_ = false;
};

}  // namespace weft::files
