// The exported folders, and names inside them. No name leads out: each is resolved by the kernel
// beneath its folder (openat2 with RESOLVE_BENEATH), so that "..", absolute paths and symbolic
// links cannot reach anything else, whatever changes meanwhile.
//
// Any thread, once it is open. All calls may wait for the disk.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "files/protocol/data_messages.h"
#include "files/protocol/draft.h"
#include "files/protocol/folder_stream.h"
#include "files/protocol/outcome.h"
#include "os/fd.h"

namespace weft::files {

// A name in the tree. Symbolic links are followed within its first `links` octets; a link further
// on is ELOOP, except as the last component of a call that takes links as they are. So a client
// that goes through a tree can't be led out of it by a link that was put there meanwhile.
struct TreePath {
  TreePath(std::string_view path) : text(path) {}     // NOLINT(google-explicit-constructor)
  TreePath(const PathName& path) : text(path.text) {  // NOLINT(google-explicit-constructor)
    if (path.links != kLinksAnywhere) links = path.links;
  }
  std::string_view text;
  std::size_t links = std::string_view::npos;
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
  [[nodiscard]] int usage(const TreePath& path, Usage& out, FileSystem& which) const;
  // A regular file, for reading.   EISDIR, EINVAL (neither file nor folder), ...
  //   EOVERFLOW     its size is 0, and yet it holds something: holds_more()
  //   EWOULDBLOCK   without `waits`: another process has a lease of it, and is told of the opening
  [[nodiscard]] int open_file(const TreePath& path, bool direct, bool waits, os::Fd& file,
                              FileState& out) const;
  [[nodiscard]] int read_link(const TreePath& path, std::string& target) const;

  // Writes entries from `cursor` (0: the first) on: `page.bytes` of them. `page.next` is 0 after
  // the last. `listing` is what an earlier page left there, and null for the first page and behind
  // the last. An entry that cannot be examined, and is not gone, has its errno
  // (Attributes::failure()), or fails the list of a client that does not know of that: nobody may
  // take a name for removed because the server could not look at it.
  //   EINVAL   not even one entry fits
  //   ESTALE   `cursor` is of a listing that is not there: begin anew
  struct Page {
    std::span<std::uint8_t> room;
    bool tells_failures = false;
    std::uint64_t next = 0;
    std::uint32_t bytes = 0;
    std::vector<os::Fd> removed = {};  // old drafts, to be closed where that may take long
  };
  [[nodiscard]] int list(const TreePath& path, std::uint64_t cursor, Page& page,
                         std::unique_ptr<FolderStream>& listing) const;

  // EROFS without `writable`.
  [[nodiscard]] int create(const TreePath& path, std::uint64_t size,
                           std::unique_ptr<Draft>& out) const;
  // A draft that outlives the connection: the one that was left for this name, size and identity,
  // or a new one.   EBUSY: somebody writes it
  [[nodiscard]] int draft(const TreePath& path, std::uint64_t size, std::uint64_t identity,
                          std::unique_ptr<Draft>& out, std::uint64_t& there) const;
  // A regular file for reading and writing in its place. `flags`: kEditCreate and so on.
  [[nodiscard]] int edit(const TreePath& path, std::uint32_t mode, std::uint32_t flags,
                         os::Fd& file, FileState& out) const;
  // `what`: kSetMode and so on. A symbolic link has a time only.
  [[nodiscard]] int set(const TreePath& path, std::uint32_t what, const Attributes& to,
                        Attributes& out) const;
  // The file or link with this name, as a path descriptor. `changes`: for a change of it
  // (EROFS).
  [[nodiscard]] int find(const TreePath& path, bool changes, os::Fd& out) const;
  // A further name for a file. Links are taken as they are.
  [[nodiscard]] int link(const TreePath& from, const TreePath& to) const;
  // A file or a folder as it is, for fsync. Without a descriptor there is nothing to flush: the
  // root above several exports.   ELOOP: a symbolic link
  [[nodiscard]] int open_to_flush(const TreePath& path, os::Fd& out) const;
  [[nodiscard]] int rename(const TreePath& from, const TreePath& to, bool keep) const;
  [[nodiscard]] int make_directory(const TreePath& path, std::uint32_t mode) const;
  // `drafts`: also a folder that holds nothing but drafts, whose room takes its time to be freed.
  [[nodiscard]] int remove(const TreePath& path, bool directory, bool drafts) const;
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
  template <class Call>
  [[nodiscard]] int with_both(const TreePath& from, const TreePath& to, Call call) const;
  // The same for a file that is to get this name: EISDIR where a folder has it.
  [[nodiscard]] int place_for_file(const TreePath& path, os::Fd& folder, std::string& name) const;
  [[nodiscard]] int fill(FolderStream& listing, Page& page) const;
  [[nodiscard]] int list_exports(std::uint64_t cursor, Page& page) const;

  std::vector<Export> exports_;
  bool writable_ = false;
};

}  // namespace weft::files
