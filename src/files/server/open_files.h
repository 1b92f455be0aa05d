// The files that a client has open, by their handles. A handle is never used twice.
//
// Belongs to a session. One thread, the server's; a file may stay open longer than its handle, and
// its last user may be a thread of the background.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "files/protocol/draft.h"
#include "files/server/background.h"
#include "os/fd.h"

namespace weft::files {

struct OpenFile {
  os::Fd fd;
  std::unique_ptr<Draft> draft;
  bool edited = false;  // written in its place
  bool leased = false;  // LEASE was asked for, and given
  [[nodiscard]] bool writable() const { return edited || draft != nullptr; }
  [[nodiscard]] int get() const { return draft != nullptr ? draft->fd() : fd.get(); }
};

class OpenFiles {
 public:
  using File = std::shared_ptr<OpenFile>;

  // `disposal` closes files whose room takes long to free, and outlives them all.
  OpenFiles(Background& disposal, std::size_t most) : disposal_(disposal), most_(most) {}
  OpenFiles(const OpenFiles&) = delete;
  OpenFiles& operator=(const OpenFiles&) = delete;

  // Whether one more may be opened while `opening` others are.
  [[nodiscard]] bool have_room(std::size_t opening) const { return size() + opening < most_; }
  // One to be opened, without a handle.
  [[nodiscard]] File make() const;
  // Its new handle.
  std::uint64_t add(File file);
  // Null: there is none with this handle.
  [[nodiscard]] File find(std::uint64_t handle) const;
  // The same, and the handle is gone.
  [[nodiscard]] File take(std::uint64_t handle);
  [[nodiscard]] std::size_t size() const { return files_.size(); }
  // All but drafts, by their handles. Those are gone then.
  [[nodiscard]] std::map<std::uint64_t, File> take_whole();
  void close() { files_.clear(); }

 private:
  Background& disposal_;
  const std::size_t most_;
  std::map<std::uint64_t, File> files_;
  std::uint64_t next_handle_ = 1;
};

// Closes a file: by `disposal` where that frees much room.
void dispose(Background& disposal, os::Fd file);

// To reserve or free less takes no longer than many a request.
inline constexpr std::uint64_t kMuchBytes = std::uint64_t{4} << 20U;
// Whether the file has more on the disk.
[[nodiscard]] bool takes_much(int fd);

}  // namespace weft::files
