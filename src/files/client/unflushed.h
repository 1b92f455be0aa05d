// Folders of a copy with --durable whose names may not be on the disk yet. A file that is on the
// disk is lost with its name, and a folder with the name that its own folder has for it.
//
// Values only; one thread.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace weft::files {

class Unflushed {
 public:
  static constexpr std::size_t kBytes = 80;  // that one takes besides its name

  // A name of this folder was made, replaced or removed, or may have been by an earlier copy.
  void note(std::string_view folder) { folders_.emplace(folder); }
  // The folder that holds `path`, in the same way.
  void note_parent_of(std::string_view path);
  // It was removed.
  void forget(const std::string& folder) { folders_.erase(folder); }
  // Those of another one, which has none then.
  void take(Unflushed& other) { folders_.merge(other.folders_); }
  [[nodiscard]] bool empty() const { return folders_.empty(); }
  void clear() { folders_.clear(); }
  // All of them, the deepest first: no folder has a name on the disk for one whose own names are
  // not.
  [[nodiscard]] std::vector<std::string> in_order() const;

 private:
  std::set<std::string, std::less<>> folders_;
};

}  // namespace weft::files
