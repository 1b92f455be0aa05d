// A folder's entries, in the order in which the kernel gives them.
#pragma once

#include <dirent.h>

#include "os/fd.h"

namespace weft::files {

// A folder whose entries a client takes page by page. Its descriptor stays open from the first page
// to the last: a place in a folder that was opened anew means nothing on overlayfs, nor on tmpfs
// before Linux 6.6, and names would be missing from the list.
class FolderStream {
 public:
  // Makes a stream of `fd`. Without one the listing is not good().
  explicit FolderStream(os::Fd fd) : stream_(fd ? fdopendir(fd.get()) : nullptr) {
    if (stream_ != nullptr) static_cast<void>(fd.release());
  }
  ~FolderStream() {
    if (stream_ != nullptr) closedir(stream_);
  }
  FolderStream(const FolderStream&) = delete;
  FolderStream& operator=(const FolderStream&) = delete;
  [[nodiscard]] bool good() const { return stream_ != nullptr; }
  [[nodiscard]] DIR* stream() const { return stream_; }

 private:
  DIR* stream_ = nullptr;
};

}  // namespace weft::files
