// The options of a copy, and what the copy reports while it runs. Values only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "files/client/filter.h"
#include "files/protocol/outcome.h"

namespace weft::files {

struct CopyOptions {
  bool recursive = false;
  bool verify = false;        // compare checksums afterwards
  bool resume = true;         // go on with what an earlier run left
  bool only_newer = false;    // sync: leave files alone that have the same size and time
  bool remove = false;        // sync: remove what the source does not have
  bool force_delete = false;  // ... although the source is empty, or another file system
  std::uint64_t max_delete = ~std::uint64_t{0};  // ... unless that are more names
  bool delete_excluded = false;                  // ... also names that `filter` hides
  bool dry_run = false;         // change nothing, and tell CopyWatcher::step what would be done
  bool direct = false;          // get: write large files past the page cache
  bool durable = false;         // wait for the disk that is copied to
  bool flush_same = false;      // ... also with files that are there already
  bool strict = false;          // only files that nobody can write meanwhile
  bool archive = false;         // owners, links between names, special files, see archive.h
  bool acls = false;            // with `archive`: ACLs, too
  bool allow_changing = false;  // keep what was copied of a file that changed meanwhile
  unsigned retry_seconds = 30;
  unsigned streams = 4;                                   // connections for the files of a tree
  std::size_t queued_files = 10000;                       // that are noted, and not copied yet
  std::uint64_t bytes_per_second = 0;                     // at most, or 0
  Filter filter;                                          // names of a tree to leave alone
  std::string state_folder;                               // KnownSource
  std::uint64_t names_bytes = std::uint64_t{128} << 20U;  // Extras::note()
};

// One thing that a copy did, or with CopyOptions::dry_run would do.
struct CopyStep {
  enum class Kind : std::uint8_t {
    kCopied,
    kSame,
    kChanged,  // not the contents: owner, mode, extended attributes
    kFolder,
    kLink,
    kName,  // a further one of a file that is there
    kSpecial,
    kRemoved,
    kSkipped
  };
  Kind kind = Kind::kCopied;
  std::string path;  // at the destination
  std::uint64_t bytes = 0;
  std::int64_t mtime_ns = 0;
  bool is_folder = false;
};

struct CopyTotals {
  std::uint64_t files = 0, folders = 0, links = 0, skipped = 0, removed = 0, failures = 0;
  std::uint64_t changed = 0;  // of the files: CopyOptions::allow_changing kept them
  std::uint64_t bytes = 0;    // moved by this run
  std::uint64_t expected = 0;

  CopyTotals& operator+=(const CopyTotals& more) {
    files += more.files;
    folders += more.folders;
    links += more.links;
    skipped += more.skipped;
    removed += more.removed;
    failures += more.failures;
    changed += more.changed;
    bytes += more.bytes;
    expected += more.expected;
    return *this;
  }
};

// The copy calls these while it runs. It calls often, so they must be cheap.
struct CopyWatcher {
  std::function<void(const CopyTotals&)> progress;
  std::function<void(const Failed&)> failed;  // of one file; the rest goes on
  std::function<void(const Failed&)>
      warned;  // the file is there, and something is to be said of it
  std::function<void(const CopyStep&)> step;
};

// The time of a copy that is no version of its source: no later sync may take it for one.
[[nodiscard]] constexpr std::int64_t time_of_changed(std::int64_t mtime_ns) { return mtime_ns - 1; }

}  // namespace weft::files
