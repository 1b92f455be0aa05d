// On which file system the source of a `sync --delete` was at the last run: one that is not mounted
// shows what is below it in its place, and that may be anything but what there was.
//
// Kept in files of this user, one for each source and destination. One thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "files/protocol/data_protocol.h"
#include "files/protocol/outcome.h"

namespace weft::files {

// Whether they are surely two. Numbers of devices change when a machine starts, and not every file
// system has an identity of its own.
[[nodiscard]] constexpr bool are_two(const FileSystem& a, const FileSystem& b) {
  const bool known = a.device != 0 && b.device != 0;
  const bool same_id = a.id != 0 && a.id == b.id;
  return known && a.device != b.device && !same_id;
}

class KnownSource {
 public:
  // `folder`: where the files are; empty: nothing is known, and nothing kept.
  KnownSource(const std::string& folder, std::string_view source, std::string_view destination);

  // At the last run. Nothing if there was none, or if that cannot be read.
  [[nodiscard]] std::optional<FileSystem> last() const;
  // A folder that cannot be written keeps nothing.
  void keep(const FileSystem& now) const;

 private:
  std::string folder_, name_;
};

// From the root, whatever folder this process is in. Links stay as they are.
[[nodiscard]] std::string absolute_name(const std::string& path);

// $XDG_STATE_HOME/weft, or the like in the home directory; empty: there is none.
[[nodiscard]] std::string state_folder();

}  // namespace weft::files
