// A folder's entries, in the order in which the kernel gives them.
#pragma once

#include <dirent.h>
#include <unistd.h>

namespace weft::files {

// A folder whose entries a client takes page by page. Its descriptor stays open from the first page
// to the last: a place in a folder that was opened anew means nothing on overlayfs, nor on tmpfs
// before Linux 6.6, and names would be missing from the list.
class FolderStream {
 public:
  // Owns `fd`, from which a stream is made. A negative `fd` gives a listing that is not good().
  explicit FolderStream(int fd) : stream_(fd >= 0 ? fdopendir(fd) : nullptr) {
    if (fd >= 0 && stream_ == nullptr) ::close(fd);
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
