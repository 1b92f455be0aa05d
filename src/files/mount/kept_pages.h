// Whether the kernel may keep the pages of a file when it is opened again: only if the version of
// the file is the one of the opening before. Size and time of the last change do not tell: somebody
// may set the time back, and two changes may fall into one tick of the server's clock.
//
// The kernel has pages for each name, so the versions are remembered by name. Any thread.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>

#include "files/client/data_client.h"
#include "os/lock.h"

namespace weft::mount {

class KeptPages {
 public:
  static constexpr std::size_t kMost = 10000;  // names that are remembered

  // `path` was opened, and the file was of this version. Returns whether its pages are, too.
  [[nodiscard]] bool opened(const std::string& path, const files::FileState& state);
  // Names were changed here: the kernel moves pages with their names. All are forgotten.
  void forget();

 private:
  os::Mutex mutex_;
  std::unordered_map<std::string, files::FileState> versions_ WEFT_GUARDED_BY(mutex_);
};

}  // namespace weft::mount
