// Changes that were made through this file system: for readers that have read ahead, for fsync(),
// and to find open files under their new names.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <utility>

#include "files/mount/unsynced.h"
#include "os/lock.h"

namespace weft::mount {

// Which files were written to through this file system. Any thread.
class Changes {
 public:
  void note(std::uint64_t file_id);
  [[nodiscard]] Unsynced<std::uint64_t>& files() { return files_; }  // by number
  [[nodiscard]] Unsynced<std::string>& folders() { return folders_; }
  // A name was made, changed or removed, under this verifier of the server.
  void note_name(const std::string& path, std::uint64_t verifier);
  // Names that were changed through this file system, so that open files are found again.
  void note_renamed(const std::string& from, const std::string& to);
  [[nodiscard]] std::uint64_t renames() const;  // so far
  // The name, after all renames, of a file that had `name` when there were `since` renames.
  [[nodiscard]] std::string name_now(std::string name, std::uint64_t since) const;
  // Differs from an earlier answer if the file was written to since.
  [[nodiscard]] std::uint64_t of(std::uint64_t file_id) const;

 private:
  static constexpr std::size_t kMost = 65536;
  mutable os::Mutex mutex_;
  std::unordered_map<std::uint64_t, std::uint64_t> last_ WEFT_GUARDED_BY(mutex_);
  std::uint64_t clock_ WEFT_GUARDED_BY(mutex_) = 0;
  std::uint64_t forgotten_ WEFT_GUARDED_BY(mutex_) = 0;  // up to here
  Unsynced<std::uint64_t> files_;
  Unsynced<std::string> folders_;
  static constexpr std::size_t kMostRenames = 4096;
  std::deque<std::pair<std::string, std::string>> renames_ WEFT_GUARDED_BY(mutex_);
  std::uint64_t first_rename_ WEFT_GUARDED_BY(mutex_) = 0;  // the number of the first one there
};

}  // namespace weft::mount
