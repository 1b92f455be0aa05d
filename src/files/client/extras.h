// Files that `sync --delete` may remove at the destination, and when it may remove them.
//
// A list proves nothing by absence: a name that is not in it may be hidden by a folder that could
// not be searched, a disk that fails, or a file system that was not mounted. So the names are
// noted while a tree is walked, and nothing is removed before everything has been copied without a
// failure. Then each name is asked for once more, and goes only if the answer is ENOENT.
//
// Names take memory. Where they take much, only the folders are noted, and looked through once more
// when it is time to remove.
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

// A folder of the destination whose names were counted only.
struct ExtraFolder {
  std::string below;
  bool is_hidden = false;  // the source's is not looked at: it is in one that is excluded
};

class Extras {
 public:
  // Another copy begins.
  void clear(const CopyOptions& options);
  // The names that follow are in this folder. Outer folders come before those in them.
  void enter(const std::string& below, bool is_hidden);
  void note(Extra extra);
  // The source's root has no entry at all.
  void note_empty_source() { source_is_empty_ = true; }
  // ... or is on another file system than the last time.
  void note_other_source() { source_is_other_ = true; }

  // Whether they may be removed: nothing has failed so far, the source is not empty
  // (CopyOptions::force_delete), and they are no more than CopyOptions::max_delete.
  //   ECANCELED   with the reason, and what to do
  [[nodiscard]] Outcome<void> may_go(const CopyOptions& options, const CopyTotals& totals) const;
  // First these folders, one by one: in the order in which they go. For each, enter() and note()
  // take its names once more.
  [[nodiscard]] std::vector<ExtraFolder> take_folders();
  // In the order in which they go: folders last, the deepest first. They are gone here.
  [[nodiscard]] std::vector<Extra> take_in_order();

 private:
  std::vector<Extra> all_;
  std::vector<ExtraFolder> folders_;
  std::uint64_t bytes_ = 0, most_bytes_ = 0;
  std::uint64_t counted_ = 0;  // names of folders_
  bool counts_ = false;        // the folder that was entered is one of them
  bool source_is_empty_ = false, source_is_other_ = false;
};

}  // namespace weft::files
