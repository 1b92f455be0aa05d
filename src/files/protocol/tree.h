// The exported folders, and names inside them. No name leads out: each is resolved by the kernel
// beneath its folder (openat2 with RESOLVE_BENEATH), so that "..", absolute paths and symbolic
// links cannot reach anything else, whatever changes meanwhile.
//
// One thread. All calls may wait for the disk.
#pragma once

#include <dirent.h>
#include <sys/stat.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "files/protocol/data_protocol.h"
#include "files/protocol/outcome.h"
#include "os/fd.h"

namespace weft::files {

// Files that a server makes while somebody writes them. Not listed, not served.
inline constexpr std::string_view kDraftPrefix = ".weft-draft-";

// Whether `name` is this very file, and its only name: a file that was opened may have got another
// name, or none, before it was locked.
[[nodiscard]] bool is_named(int folder, const std::string& name, int fd);

// With the stamp of an open file (Attributes::stamp).
[[nodiscard]] Attributes attributes_of(int fd, int* error);
// Attributes::stamp of a file that is open or named by a path descriptor.
// `changed_ns`: when its inode was changed last.
[[nodiscard]] std::uint32_t stamp_of(int fd, std::int64_t changed_ns);
// Changes of an open file what `what` (kSetMode...) names. Returns 0 or an errno.
[[nodiscard]] int set_attributes(int fd, std::uint32_t what, const Attributes& to);

// A new file that does not have its name yet. It goes if it is not committed; with a name for the
// time until then, only by discard(): a later attempt may go on with it.
class Draft {
 public:
  Draft(os::Fd folder, std::string name, os::Fd file, std::string hidden = {}) noexcept
      : folder_(std::move(folder)),
        name_(std::move(name)),
        hidden_(std::move(hidden)),
        file_(std::move(file)) {}
  [[nodiscard]] int fd() const { return file_.get(); }
  void discard();
  // Gives the file its attributes and, in one step, its name: a reader finds the old file or
  // the whole new one. Returns 0 or an errno.
  [[nodiscard]] int commit(std::uint32_t mode, std::int64_t mtime_ns, bool durable);

 private:
  os::Fd folder_;
  std::string name_, hidden_;
  os::Fd file_;
};

// A name in the tree. Symbolic links are followed within its first `links` octets; a link further
// on is ELOOP, except as the last component of a call that takes links as they are. So a client
// that goes through a tree can't be led out of it by a link that was put there meanwhile.
struct TreePath {
  TreePath(std::string_view path) : text(path) {}  // NOLINT(google-explicit-constructor)
  TreePath(std::string_view path, std::uint16_t follow) : text(path) {
    if (follow != kLinksAnywhere) links = follow;
  }
  std::string_view text;
  std::size_t links = std::string_view::npos;
};

// A folder whose entries a client takes page by page. Its descriptor stays open from the first page
// to the last: a place in a folder that was opened anew means nothing on overlayfs, nor on tmpfs
// before Linux 6.6, and names would be missing from the list.
class Listing {
 public:
  // Owns `fd`, from which a stream is made. A negative `fd` gives a listing that is not good().
  explicit Listing(int fd);
  ~Listing();
  Listing(const Listing&) = delete;
  Listing& operator=(const Listing&) = delete;
  [[nodiscard]] bool good() const { return stream_ != nullptr; }
  [[nodiscard]] DIR* stream() const { return stream_; }

 private:
  DIR* stream_ = nullptr;
};

class Tree {
 public:
  // One folder is the root itself; several appear below the root under their last names. What is
  // named may be a symbolic link.
  [[nodiscard]] static Outcome<Tree> open(const std::vector<std::string>& folders, bool writable);

  // Single files, below the root under their last names; read-only.
  [[nodiscard]] static Outcome<Tree> open_files(const std::vector<std::string>& files);

  [[nodiscard]] bool writable() const { return writable_; }

  // Errors are errno values; EXDEV is a name that leads out of the exported folder,
  // EINVAL a TreePath whose `links` end within a component.
  [[nodiscard]] int stat(const TreePath& path, Attributes& out) const;
  // Usage of the file system that holds `path`. The root above several exports has the first's.
  [[nodiscard]] int usage(const TreePath& path, Usage& out) const;
  // A regular file, for reading.   EISDIR, EINVAL (neither file nor folder), ...
  [[nodiscard]] int open_file(const TreePath& path, bool direct, os::Fd& file,
                              Attributes& out) const;
  [[nodiscard]] int read_link(const TreePath& path, std::string& target) const;

  // Writes entries from `cursor` (0: the first) on. `next` is 0 after the last. `listing` is what
  // an earlier page left there, and null for the first page and behind the last. An entry that
  // cannot be examined fails the list, unless it is gone: nobody may take a name for removed
  // because the server could not look at it.
  //   EINVAL   not even one entry fits
  //   ESTALE   `cursor` is of a listing that is not there: begin anew
  [[nodiscard]] int list(const TreePath& path, std::uint64_t cursor, std::span<std::uint8_t> room,
                         std::uint64_t& next, std::uint32_t& bytes,
                         std::unique_ptr<Listing>& listing) const;

  // EROFS without `writable`.
  [[nodiscard]] int create(const TreePath& path, std::uint64_t size, std::unique_ptr<Draft>& out);
  // A draft that outlives the connection: the one that was left for this name, size and identity,
  // or a new one.   EBUSY: somebody writes it
  [[nodiscard]] int draft(const TreePath& path, std::uint64_t size, std::uint64_t identity,
                          std::unique_ptr<Draft>& out, std::uint64_t& there) const;
  // A regular file for reading and writing in its place. `flags`: kEditCreate and so on.
  [[nodiscard]] int edit(const TreePath& path, std::uint32_t mode, std::uint32_t flags,
                         os::Fd& file, Attributes& out) const;
  // `what`: kSetMode and so on. A symbolic link has a time only.
  [[nodiscard]] int set(const TreePath& path, std::uint32_t what, const Attributes& to,
                        Attributes& out) const;
  [[nodiscard]] int rename(const TreePath& from, const TreePath& to, bool keep) const;
  [[nodiscard]] int make_directory(const TreePath& path, std::uint32_t mode) const;
  [[nodiscard]] int remove(const TreePath& path, bool directory) const;
  [[nodiscard]] int symlink(const TreePath& path, std::string_view target) const;

 private:
  struct Export {
    std::string name;  // empty: the root itself
    os::Fd fd;
    std::string file = {};  // not empty: only this file of the folder
  };
  // An export and the name inside it; fd -1: the root above several exports, or no such export.
  struct Place {
    int fd = -1;
    std::string rest;
    std::size_t links = std::string::npos;  // TreePath::links, counted in `rest`
    bool root = false;
  };
  [[nodiscard]] Place locate(const TreePath& path) const;
  // The folder that holds the last component of `path`, and that component.
  [[nodiscard]] int parent_of(const TreePath& path, os::Fd& folder, std::string& name) const;
  // The same for a file that is to get this name: EISDIR where a folder has it.
  [[nodiscard]] int place_for_file(const TreePath& path, os::Fd& folder, std::string& name) const;
  [[nodiscard]] int fill(Listing& listing, std::span<std::uint8_t> room, std::uint64_t& next,
                         std::uint32_t& bytes) const;
  [[nodiscard]] int list_exports(std::uint64_t cursor, std::span<std::uint8_t> room,
                                 std::uint64_t& next, std::uint32_t& bytes) const;

  std::vector<Export> exports_;
  bool writable_ = false;
};

}  // namespace weft::files
