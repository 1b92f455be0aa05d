// Partial files: a file that a client writes has another name, or none, until it is whole.
//
// One thread for each. All calls may wait for the disk.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "os/fd.h"

namespace weft::files {

// Files that a server makes while somebody writes them. Not listed, not served.
inline constexpr std::string_view kDraftPrefix = ".weft-draft-";

// Whether `name` is this very file, and its only name: a file that was opened may have got another
// name, or none, before it was locked.
[[nodiscard]] bool is_named(int folder, const std::string& name, int fd);

// A new file that does not have its name yet. It goes if it is not committed; one that `stays` has
// a name for the time until then, and goes only by discard(): a later attempt may go on with it.
class Draft {
 public:
  Draft(os::Fd folder, std::string name, os::Fd file, std::string hidden = {},
        bool stays = false) noexcept
      : folder_(std::move(folder)),
        name_(std::move(name)),
        hidden_(std::move(hidden)),
        file_(std::move(file)),
        stays_(stays) {}
  ~Draft() { drop(); }
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;
  [[nodiscard]] int fd() const { return file_.get(); }
  void discard();
  // As when it goes: without a name, unless it stays. Its room is freed when the descriptor goes.
  void drop() {
    if (!stays_) discard();
  }
  // Whether a file of more octets gives way to it.
  [[nodiscard]] bool replaces_more_than(std::uint64_t bytes) const;
  // Gives the file its attributes and, in one step, its name: a reader finds the old file or
  // the whole new one. Returns 0 or an errno. `flags`: kCommitDurable and so on. `flush_failed`: of
  // those. Where that was the file, it is gone for good: its octets can be read, and compared,
  // although they are not on the disk, and flushing it again would not say so. Where it was the
  // folder behind it, the file has its name, which may not be on the disk.
  [[nodiscard]] int commit(std::uint32_t mode, std::int64_t mtime_ns, std::uint32_t flags,
                           bool& flush_failed);

 private:
  os::Fd folder_;
  std::string name_, hidden_;
  os::Fd file_;
  bool stays_;
};

// A name of a draft that no other one has.
[[nodiscard]] std::string random_draft_name();

// A full disk is reported now rather than after an hour. Not every file system can tell.  An errno
[[nodiscard]] int reserve(int fd, std::uint64_t size);

// Returns when a file, or a folder with its names, is on the disk. An errno
[[nodiscard]] int flush(int fd);

// Removes a draft that a server or client which has ended left behind, long ago. A process that
// uses it holds its lock, and then it stays. Its last descriptor, to be closed where that may take
// long; none: nothing was removed.
[[nodiscard]] os::Fd remove_if_old(int folder, const char* name);
// A folder in which nothing is listed is empty for its clients: its drafts are removed with it,
// unless somebody writes one. Returns whether there was nothing else; errno is ENOTEMPTY otherwise.
[[nodiscard]] bool remove_drafts(int parent, const std::string& name);

}  // namespace weft::files
