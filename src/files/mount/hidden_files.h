// Files that were removed while a program has them open. libfuse gives them another name in their
// folder, and removes that some time after the program has closed them. Nobody else should be kept
// from removing the folder meanwhile, as on local file systems. Any thread.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "os/lock.h"

namespace weft::mount {

class HiddenFiles {
 public:
  // A name was changed: libfuse may have hidden a file, or the folder of some has another name.
  void renamed(const std::string& from, const std::string& to);
  void removed(const std::string& path);
  // Those in this folder.
  [[nodiscard]] std::vector<std::string> in(const std::string& folder) const;

 private:
  mutable os::Mutex mutex_;
  std::set<std::string> paths_ WEFT_GUARDED_BY(mutex_);
};

}  // namespace weft::mount
